// Receive tables: a receiving rank's own messages of a reshard plan, as buckets.
#ifndef TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_
#define TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_

#include <google/protobuf/repeated_field.h>

#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights {

// Pieces [first, first + count) of a bucket, contiguous in the receiver's tensors, which are laid
// end to end in manifest order. Travels as one message, which both sides derive from the table; if
// these tensors are contiguous in memory, it can be received directly into place.
struct BucketSpan {
  int first = 0;
  int count = 0;
  int64_t bucket_offset = 0;
  int64_t size_bytes = 0;
};
// `tensor_bytes`: bytes of each tensor that the receiver holds.
std::vector<BucketSpan> SpansOf(const Bucket& bucket, const std::vector<int64_t>& tensor_bytes);

inline BucketSpan WholeBucket(const Bucket& bucket) {
  return {0, bucket.pieces_size(), 0, bucket.size_bytes()};
}

// True if all runs of a piece from a peer lie within a tensor of `tensor_bytes` bytes.
bool IsWithin(const common::v1::BucketPiece& piece, int64_t tensor_bytes);

// Converts one message to a bucket.
Bucket BucketOf(const ReshardPlan& plan, const Message& message);

// Returns the messages to `receiver` in plan order; the source is the sender's rank in the plan.
std::vector<Bucket> BucketsFor(const ReshardPlan& plan, int receiver);

// Validates a receive table from a peer and returns its plan. INVALID_ARGUMENT, naming bucket and
// tensor, unless every piece lies within its tensor and bucket and the pieces of each tensor add up
// to its size; with `keeps_frozen`, frozen tensors must have no pieces. Does not detect duplicate
// bytes; the digests do. Allocates nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckReceiveTable(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen = false);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_
