// What a rank that receives is told of a reshard plan: its own messages, as buckets.
#ifndef TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_
#define TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_

#include <google/protobuf/repeated_field.h>

#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/reshard_plan.h"

namespace tandem::weights {

// Pieces [first, first + count) of a bucket that follow one another in the receiver's tensors, laid
// end to end in manifest order. It travels in one message, which both sides know from the table; so
// where these tensors lie end to end in memory, it can be received straight into its place.
struct BucketSpan {
  int first = 0;
  int count = 0;
  int64_t bucket_offset = 0;
  int64_t size_bytes = 0;
};
// `tensor_bytes`: of what the receiver holds of each tensor.
std::vector<BucketSpan> SpansOf(const Bucket& bucket, const std::vector<int64_t>& tensor_bytes);

inline BucketSpan WholeBucket(const Bucket& bucket) {
  return {0, bucket.pieces_size(), 0, bucket.size_bytes()};
}

// Whether all runs of a piece that a peer sent lie within a tensor of so many bytes.
bool IsWithin(const common::v1::BucketPiece& piece, int64_t tensor_bytes);

// One message as a bucket.
Bucket BucketOf(const ReshardPlan& plan, const Message& message);

// The messages to `receiver` in the plan's order; the source is the sender's rank in the plan.
std::vector<Bucket> BucketsFor(const ReshardPlan& plan, int receiver);

// The plan of a table that a peer sent. INVALID_ARGUMENT, naming bucket and tensor, unless every
// piece lies within its tensor and bucket, and each tensor gets as many bytes as it has. That none
// of them comes twice is for the digests to say. Allocates nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckReceiveTable(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RECEIVE_TABLE_H_
