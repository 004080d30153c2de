// What a rank is told of a relay plan: what it passes on of its own buckets, and to whom.
#ifndef TANDEM_COMMON_WEIGHTS_RELAY_TABLE_H_
#define TANDEM_COMMON_WEIGHTS_RELAY_TABLE_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/relay_plan.h"

namespace tandem::weights {

using RelayedBucket = common::v1::RelayedBucket;
using RelayedBuckets = google::protobuf::RepeatedPtrField<RelayedBucket>;

// Of rank `sender`, in the order in which it passes them on. Receiver r of the plan is rank
// first_receiver + r of the group; `tensor_bytes`: by receiver and tensor, what it holds.
RelayedBuckets RelayedFor(const RelayPlan& plan, int sender, int first_receiver,
                          const std::vector<std::vector<int64_t>>& tensor_bytes);

// Of a table that a peer sent, for a rank that receives as `plan` says. INVALID_ARGUMENT names what
// is passed on, unless it comes after buckets of the plan, in their order, and every piece lies
// within its tensor. That what is passed on has arrived by then is for the digests to say.
absl::Status CheckRelayed(const TransferPlan& plan, const RelayedBuckets& relayed);

// The bytes of all pieces.
int64_t SizeBytes(const RelayedBucket& relayed);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_TABLE_H_
