// TensorSink: puts buckets into tensors that lie in memory, the host's or a device's, and digests
// what lies there.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/device_ops.h"
#include "common/weights/digest.h"
#include "common/weights/packed_tensors.h"

namespace tandem::weights {

// The bytes of tensor i of the manifest, at a fixed address; none where it is packed.
using TensorMemory = std::function<absl::Span<std::byte>(int tensor)>;

// The bytes of tensor i in the version that a delta is applied on; none where it is packed.
using BaseMemory = std::function<absl::Span<const std::byte>(int tensor)>;

// Told of bytes [offset, offset + size) of a tensor when they are there and digested, once each; an
// error ends the update.
using BytesArrived = std::function<absl::Status(int tensor, int64_t offset, int64_t size)>;

// One update; the plan outlives it, and `ops`, whose memory the tensors and the base are in: what
// is done to them is queued there, and done when Digest() returns. What has arrived is digested
// bucket by bucket from where it lies or, on the host, while it is written there: the digests say
// what is there, not what passed by. Of a packed tensor they say what was packed.
class TensorSink : public BucketSink {
 public:
  // INTERNAL names a tensor whose memory has another size than the plan.
  ~TensorSink() override;
  static absl::StatusOr<std::unique_ptr<TensorSink>> Create(
      const TransferPlan& plan, TensorMemory memory, BytesArrived arrived = nullptr,
      BaseMemory base = nullptr, DeviceOps& ops = CpuOps(), PackedTensors* packed = nullptr);

  absl::Status Collect(int bucket, at::Tensor buffer) override;
  absl::Span<std::byte> Place(int bucket, const BucketSpan& span) override;
  absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) override;
  comm::MessageTaker* Taker(int bucket, const BucketSpan& span, bool keeps) override;
  PhaseTimes::Clock::duration taken_time() const override { return taken_time_; }
  absl::Status Digest(int bucket) override;

  // Complete after the last bucket.
  const std::vector<TensorDigest>& digests() const { return digests_; }

 private:
  TensorSink(const TransferPlan& plan, TensorMemory memory, BytesArrived arrived, BaseMemory base,
             DeviceOps& ops, PackedTensors* packed);

  using Piece = common::v1::BucketPiece;
  class SpanTaker;
  bool IsPacked(int tensor) const { return is_packed_[tensor]; }
  // Digests bytes of a packed tensor, which lie there, and packs them.
  absl::Status PackFrom(int tensor, int64_t offset, absl::Span<const std::byte> bytes);
  // Of what is packed next: room for that much, soon in the core's cache.
  absl::Span<std::byte> Scratch(int64_t size);
  // Digests the pieces where they lie.
  absl::Status AddToSums(absl::Span<const Piece* const> pieces);
  // Says that all of it is there.
  absl::Status Arrived(const Piece& piece);
  // Says that these bytes are there and digested, and completes their tensor's digest if they were
  // the last.
  absl::Status Arrived(int tensor, int64_t offset, int64_t size);

  const TransferPlan& plan_;
  const TensorMemory memory_;
  const BytesArrived arrived_;   // null: nobody asks
  const BaseMemory base_;        // null: there is none
  PackedTensors* const packed_;  // null: no tensor is
  DeviceOps& ops_;
  std::vector<bool> is_packed_;
  std::vector<std::byte> scratch_;
  std::vector<int64_t> missing_;  // bytes of each tensor that are not digested yet
  std::vector<DigestSum> sums_;
  std::vector<DigestRun> runs_;                                    // of what is being digested
  std::map<int, std::vector<std::unique_ptr<SpanTaker>>> takers_;  // by bucket
  PhaseTimes::Clock::duration taken_time_ = {};
  std::vector<TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
