// TensorSink: puts buckets into tensors that lie in memory, and digests what lies there.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/digest.h"

namespace tandem::weights {

// The bytes of tensor i of the manifest, at a fixed address.
using TensorMemory = std::function<absl::Span<std::byte>(int tensor)>;

// The bytes of tensor i in the version that a delta is applied on.
using BaseMemory = std::function<absl::Span<const std::byte>(int tensor)>;

// Told of bytes [offset, offset + size) of a tensor when they are there and digested, once each; an
// error ends the update.
using BytesArrived = std::function<absl::Status(int tensor, int64_t offset, int64_t size)>;

// One update; the plan outlives it. What has arrived is digested bucket by bucket, while it is in
// the core's cache, and from where it lies: the digests say what is there, not what passed by.
class TensorSink : public BucketSink {
 public:
  // INTERNAL names a tensor whose memory has another size than the plan.
  static absl::StatusOr<std::unique_ptr<TensorSink>> Create(const TransferPlan& plan,
                                                            TensorMemory memory,
                                                            BytesArrived arrived = nullptr,
                                                            BaseMemory base = nullptr);

  absl::Status Collect(int bucket, at::Tensor buffer) override;
  absl::Span<std::byte> Place(int bucket, const BucketSpan& span) override;
  absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) override;
  absl::Status Digest(int bucket) override;

  // Complete after the last bucket.
  const std::vector<TensorDigest>& digests() const { return digests_; }

 private:
  TensorSink(const TransferPlan& plan, TensorMemory memory, BytesArrived arrived, BaseMemory base)
      : plan_(plan),
        memory_(std::move(memory)),
        arrived_(std::move(arrived)),
        base_(std::move(base)),
        missing_(plan.tensor_bytes),
        sums_(plan.tensor_bytes.size()) {}

  const TransferPlan& plan_;
  const TensorMemory memory_;
  const BytesArrived arrived_;    // null: nobody asks
  const BaseMemory base_;         // null: there is none
  std::vector<int64_t> missing_;  // bytes of each tensor that are not digested yet
  std::vector<DigestSum> sums_;
  std::vector<TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
