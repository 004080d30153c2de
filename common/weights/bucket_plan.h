// TransferPlan: a manifest and its buckets, made from metadata alone, so that all ranks agree on
// them.
//
// A model's canonical stream is its tensors' bytes one after another in manifest order. Buckets cut
// it every `bucket_bytes`; a tensor may span buckets and a bucket may hold many tensors.
#ifndef TANDEM_COMMON_WEIGHTS_BUCKET_PLAN_H_
#define TANDEM_COMMON_WEIGHTS_BUCKET_PLAN_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/manifest.h"

namespace tandem::weights {

inline constexpr int64_t kMaxBucketBytes = int64_t{4} << 30;
inline constexpr int kMaxBuckets = 1 << 22;

struct TransferPlan {
  Manifest manifest;
  std::vector<int64_t> tensor_bytes;  // of manifest.tensors
  std::vector<Bucket> buckets;
  int64_t total_bytes = 0;
  int64_t largest_bucket_bytes = 0;

  // "bucket 3 of 17, from model.layers.0.mlp.up_proj.weight", for errors and traces.
  std::string BucketName(int bucket) const;
};

// The size of buckets for a stream of `total_bytes`, at most `most`: so many that gathering, wire
// and unpacking overlap where the model is small, but none so small that its latency counts.
int64_t ChooseBucketBytes(int64_t most, int64_t total_bytes);

// The same for buckets that travel from rank to rank, of which several are under way: so small that
// one that has arrived is still in the core's cache when it is passed on, digested and unpacked.
int64_t ChooseMessageBytes(int64_t most, int64_t total_bytes);

// Of such buckets: how many are under way at once, at least two. They hold 16 MiB, or two buckets
// where those are larger.
int MessagesUnderWay(int64_t largest_bytes);

// A plan without buckets. Errors as CheckManifest().
absl::StatusOr<TransferPlan> PlanOfManifest(Manifest manifest);

// Cuts the stream. `bucket_bytes` is rounded down to whole elements of 8 bytes, at least one.
// INVALID_ARGUMENT where it is not positive or beyond kMaxBucketBytes, or for a bad manifest.
absl::StatusOr<TransferPlan> MakeTransferPlan(Manifest manifest, int64_t bucket_bytes);

// The plan of a table that a peer sent. INVALID_ARGUMENT, naming bucket and tensor, unless the
// buckets are the canonical stream: every byte of every tensor once, in order, without gaps.
// Allocates nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckTransferPlan(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BUCKET_PLAN_H_
