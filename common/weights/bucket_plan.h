// TransferPlan: a manifest and its buckets, computed from metadata alone, so all ranks agree on
// them.
//
// A model's canonical stream is its tensors' bytes, concatenated in manifest order; an update in
// which the receivers keep the frozen tensors leaves these out. A new bucket starts every
// `bucket_bytes`; a tensor may span buckets and a bucket may hold many tensors.
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
  std::vector<int64_t> tensor_bytes;  // by manifest tensor
  std::vector<Bucket> buckets;
  int64_t total_bytes = 0;
  int64_t largest_bucket_bytes = 0;
  // The buckets bring the trainable tensors only; the receiver has the frozen ones.
  bool keeps_frozen = false;

  bool Brings(int tensor) const { return !keeps_frozen || manifest.tensors(tensor).trainable(); }
  // Bytes that the buckets bring: of a tensor, and of all tensors.
  int64_t BroughtBytes(int tensor) const { return Brings(tensor) ? tensor_bytes[tensor] : 0; }
  int64_t BroughtBytes() const;
  // "bucket 3 of 17, from model.layers.0.mlp.up_proj.weight", for errors and traces.
  std::string BucketName(int bucket) const;
};

// Returns the bucket size for a stream of `total_bytes`, at most `most`: enough buckets that
// gather, wire and unpack overlap for small models, but none so small that latency dominates.
int64_t ChooseBucketBytes(int64_t most, int64_t total_bytes);

// The same for buckets relayed from rank to rank, with several in flight: small enough that a
// received bucket is still in the core's cache when it is forwarded, digested and unpacked.
int64_t ChooseMessageBytes(int64_t most, int64_t total_bytes);

// How many relayed buckets are in flight at once: as many as fit in 16 MiB, but 2 to 8.
int MessagesUnderWay(int64_t largest_bytes);

// Returns a plan without buckets. Errors: those of CheckManifest().
absl::StatusOr<TransferPlan> PlanOfManifest(Manifest manifest, bool keeps_frozen = false);

// Cuts the stream into buckets of `bucket_bytes`, rounded down to a multiple of 8 (at least 8), so
// no element is split. INVALID_ARGUMENT if it is not positive, exceeds kMaxBucketBytes or makes
// more than kMaxBuckets buckets, or for a bad manifest.
absl::StatusOr<TransferPlan> MakeTransferPlan(Manifest manifest, int64_t bucket_bytes,
                                              bool keeps_frozen = false);

// Validates a bucket table received from a peer and returns its plan. INVALID_ARGUMENT, naming
// bucket and tensor, unless the buckets are the canonical stream: every byte of every tensor that
// they bring once, in order, without gaps. Allocates nothing beyond what was received.
absl::StatusOr<TransferPlan> CheckTransferPlan(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen = false);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BUCKET_PLAN_H_
