// TensorSink: stores buckets into tensors in host or device memory, and digests what is stored.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/tensor_digests.h"
#include "common/weights/update_memory.h"

namespace tandem::weights {

// Serves one update. The plan and the memory must outlive it; work on the memory is queued on its
// ops and complete when Digest() returns. Digests cover the
// stored bytes, not those in transit: they are computed bucket by bucket from the destination or,
// on the host, while writing it. For a packed tensor they cover the bytes before packing.
class TensorSink : public BucketSink {
 public:
  ~TensorSink() override;
  // INTERNAL, naming the tensor, if its memory does not have the plan's size.
  static absl::StatusOr<std::unique_ptr<TensorSink>> Create(const TransferPlan& plan,
                                                            UpdateMemory& memory);

  absl::Status Collect(int bucket, at::Tensor buffer) override;
  absl::Span<std::byte> Place(int bucket, const BucketSpan& span) override;
  absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) override;
  comm::MessageTaker* Taker(int bucket, const BucketSpan& span, bool keeps) override;
  PhaseTimes::Clock::duration taken_time() const override { return taken_time_; }
  absl::Status Digest(int bucket) override;

  // Takes over a tensor of the base, which no bucket brings, and digests it. Errors: those of the
  // base's memory.
  absl::Status TakeFromBase(int tensor);

  // Complete after the last bucket and, if the plan keeps frozen tensors, TakeFromBase() of these.
  const std::vector<TensorDigest>& digests() const { return digests_; }

 private:
  TensorSink(const TransferPlan& plan, UpdateMemory& memory);

  using Piece = common::v1::BucketPiece;
  class SpanTaker;
  bool IsPacked(int tensor) const { return is_packed_[tensor]; }
  // The tensor's bytes in the base; INTERNAL if it has another size.
  absl::StatusOr<absl::Span<const std::byte>> BaseOf(int tensor) const;
  // Digests bytes of a packed tensor from `bytes`, and packs them.
  absl::Status PackFrom(int tensor, int64_t offset, absl::Span<const std::byte> bytes);
  // Scratch of `size` bytes for the next packing; reused, so it stays in the core's cache.
  absl::Span<std::byte> Scratch(int64_t size);
  // Digests the pieces in place.
  absl::Status AddToSums(absl::Span<const Piece* const> pieces);
  // Reports all bytes of the piece.
  absl::Status Arrived(const Piece& piece);
  // Reports these bytes as stored and digested; completes the tensor's digest with its last bytes.
  absl::Status Arrived(int tensor, int64_t offset, int64_t size);

  const TransferPlan& plan_;
  UpdateMemory& memory_;
  DeviceOps& ops_;
  std::vector<bool> is_packed_;
  std::vector<std::byte> scratch_;
  std::vector<int64_t> missing_;  // bytes of each tensor that are not digested yet
  std::vector<DigestSum> sums_;
  std::vector<DigestRun> runs_;                                    // being digested
  std::map<int, std::vector<std::unique_ptr<SpanTaker>>> takers_;  // by bucket
  PhaseTimes::Clock::duration taken_time_ = {};
  std::vector<TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
