// ContributionDigests: digests, by tensor, of the bytes that a rank contributes to gathered
// buckets, computed where they are packed. If nothing was damaged in transit, the sum over all
// ranks equals the digest of the gathered bytes.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_CONTRIBUTION_DIGESTS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_CONTRIBUTION_DIGESTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/weights/bucket_plan.h"
#include "common/weights/device_ops.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/publish/digest_lanes.h"
#include "tandem/trainer/v1/publish_order.pb.h"

namespace tandem::trainer {

class ContributionDigests {
 public:
  explicit ContributionDigests(int num_tensors) : sums_(num_tensors) {}

  void Reset() {
    sums_.assign(sums_.size(), {});
    noted_.clear();
  }

  // Queues `bytes`, which start at byte `offset` of the bucket, for the next Digest(). They must
  // not change until then.
  void Note(const weights::Bucket& bucket, int64_t offset, absl::Span<const std::byte> bytes) {
    const int64_t end = offset + static_cast<int64_t>(bytes.size());
    for (const auto& piece : bucket.pieces()) {
      const int64_t first = std::max(offset, piece.bucket_offset());
      const int64_t last = std::min(end, piece.bucket_offset() + piece.size_bytes());
      if (first >= last) continue;
      weights::DigestRun& run = noted_.emplace_back();
      run.bytes = bytes.data() + first - offset;
      run.offset = piece.tensor_offset() + first - piece.bucket_offset();
      run.row_bytes = last - first;
      run.slot = piece.tensor();
    }
  }

  // Digests the noted bytes, which are memory of `ops`. Errors are those of `ops`.
  absl::Status Digest(weights::DeviceOps& ops) {
    if (noted_.empty()) return absl::OkStatus();
    const absl::Status status = ops.Digest(noted_, absl::MakeSpan(sums_));
    noted_.clear();
    return status;
  }

  // Adds digests of bytes that are not noted, by tensor.
  void Add(const std::vector<weights::DigestSum>& sums) {
    for (size_t i = 0; i < sums_.size(); ++i) sums_[i].Add(sums[i]);
  }

  v1::HeldDigests ToProto() const {
    v1::HeldDigests out;
    AppendLanes(sums_, *out.mutable_lanes());
    return out;
  }

  // Adds another rank's digests. INTERNAL if they belong to another model.
  absl::Status Add(const v1::HeldDigests& other) {
    return AddLanes(other.lanes(), absl::MakeSpan(sums_));
  }

  const weights::DigestSum& sum(int tensor) const { return sums_[tensor]; }

  // DATA_LOSS names the first of the plan's tensors whose gathered bytes differ.
  absl::Status Compare(const weights::TransferPlan& plan,
                       const std::vector<weights::TensorDigest>& gathered) const {
    for (size_t i = 0; i < sums_.size(); ++i) {
      if (!plan.Brings(static_cast<int>(i)) || sums_[i].Hex() == gathered[i].digest()) continue;
      return absl::DataLossError(absl::StrCat(
          "phase gather: tensor ", gathered[i].name(), " arrived at the leader with digest ",
          gathered[i].digest(), ", the trainer's ranks sent ", sums_[i].Hex()));
    }
    return absl::OkStatus();
  }

 private:
  std::vector<weights::DigestSum> sums_;   // by tensor
  std::vector<weights::DigestRun> noted_;  // by slot of these
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_CONTRIBUTION_DIGESTS_H_
