// Who receives what in a broadcast. Bytes that every rank of every replica holds go to all ranks in
// one collective. The others, parts of tensors and experts, go only to ranks that hold them: the
// leader sends each rank of a replica its part of every bucket, end to end, and that rank passes it
// on to the same rank of the next replica with as many ranks.
//
//   const std::vector<bool> to_all = HeldByAll({&two_ranks, &four_ranks});
//   ASSIGN_OR_RETURN(const RankShare share, ShareOfRank(plan, to_all, two_ranks, 0));
//   // The leader cuts share.part[b] from bucket b of the plan; the rank receives share.buckets.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/model_layout.h"

namespace tandem::weights {

// Bucket::source of bytes that only the ranks with this rank's part receive. Those for all have
// source 0, the leader.
inline constexpr int kToPart = -1;

// `repeat` runs of `size_bytes` bytes of a bucket; run i starts at offset + i * stride.
struct BucketRuns {
  int64_t offset = 0;
  int64_t size_bytes = 0;
  int64_t repeat = 1;
  int64_t stride = 0;  // ignored for one run
};

// One message: bytes of a bucket, end to end. No runs: there is no message.
struct BucketCut {
  int32_t first_tensor = 0;
  int64_t size_bytes = 0;
  std::vector<BucketRuns> runs;

  // Whether the bucket holds the message as it is.
  bool IsRange() const { return runs.size() == 1 && runs[0].repeat == 1; }
};

// What one rank receives.
struct RankShare {
  std::vector<BucketCut> all, part;  // by bucket of the plan: for all ranks, and for this one
  std::vector<Bucket> buckets;       // the same messages, as the rank's table: `all` comes first
};

// By tensor: whether every rank of all layouts, which are of one model, holds all of it.
std::vector<bool> HeldByAll(absl::Span<const ModelLayout* const> layouts);

// The share of rank `rank` of `layout` in `whole`, a plan of the canonical stream. `to_all`: the
// result of HeldByAll() for the fleet. INVALID_ARGUMENT if the layout belongs to another model.
absl::StatusOr<RankShare> ShareOfRank(const TransferPlan& whole, const std::vector<bool>& to_all,
                                      const ModelLayout& layout, int rank);

// Tag of the collective that brings bytes from `first_tensor` on to all ranks, whose tables number
// their buckets differently.
std::string TagForAll(const Manifest& manifest, int first_tensor);

// Whether a table has buckets that do not go to all ranks.
bool HasParts(const google::protobuf::RepeatedPtrField<Bucket>& buckets);

// Validates such a table received from a peer and returns its plan. INVALID_ARGUMENT, naming bucket
// and tensor, for what CheckReceiveTable() refuses and for a source other than 0 and kToPart.
absl::StatusOr<TransferPlan> CheckBroadcastPart(
    Manifest manifest, const google::protobuf::RepeatedPtrField<Bucket>& buckets,
    bool keeps_frozen = false);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_PART_H_
