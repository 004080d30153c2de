// What a rank that holds parts of a model takes of the buckets of a broadcast, which are whole.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/model_layout.h"

namespace tandem::weights {

// The buckets of `whole`, a plan of the canonical stream, as rank `rank` of `layout` takes them: as
// many, of the same sizes, with the pieces of its boxes; those of a rank that holds everything are
// the plan's. INVALID_ARGUMENT where the layout is of another model.
absl::StatusOr<std::vector<Bucket>> BucketsOfPart(const TransferPlan& whole,
                                                  const ModelLayout& layout, int rank);

// The plan of such a table that a peer sent. INVALID_ARGUMENT, naming bucket and tensor, unless
// every piece lies within its tensor and bucket, and each tensor gets as many bytes as it has.
// Allocates nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckBroadcastPart(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
