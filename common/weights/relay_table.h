// Relay tables: which parts of its own buckets a rank forwards, and to whom.
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

// Returns the table of rank `sender`, in sending order. Receiver r of the plan is rank
// first_receiver + r of the group; `tensor_bytes`: held bytes by receiver and tensor.
RelayedBuckets RelayedFor(const RelayPlan& plan, int sender, int first_receiver,
                          const std::vector<std::vector<int64_t>>& tensor_bytes);

// Validates a peer's table for a rank that receives according to `plan`. INVALID_ARGUMENT, naming
// the entry, unless entries follow buckets of the plan, in order, and every piece lies within its
// tensor. Does not check that the forwarded data has arrived by then; the digests do.
absl::Status CheckRelayed(const TransferPlan& plan, const RelayedBuckets& relayed);

// The bytes of all pieces.
int64_t SizeBytes(const RelayedBucket& relayed);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_TABLE_H_
