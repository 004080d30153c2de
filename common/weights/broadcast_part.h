// Broadcast buckets for a rank that holds only parts of a model. Each bucket carries full tensors;
// the rank keeps the bytes of its own boxes.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_

#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/model_layout.h"

namespace tandem::weights {

// Returns the buckets of `whole`, a plan of the canonical stream, with the pieces that rank `rank`
// of `layout` keeps. Their number and sizes stay the same; a rank that holds everything gets the
// plan's own buckets. INVALID_ARGUMENT if the layout belongs to another model.
absl::StatusOr<std::vector<Bucket>> BucketsOfPart(const TransferPlan& whole,
                                                  const ModelLayout& layout, int rank);

// Validates such a bucket table received from a peer and returns its plan. INVALID_ARGUMENT, naming
// bucket and tensor, unless every piece lies within its tensor and bucket and the pieces of each
// tensor add up to its size; with `keeps_frozen`, frozen tensors must have no pieces. Allocates
// nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckBroadcastPart(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen = false);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
