// TensorSink: puts buckets into tensors that lie in memory, and digests what lies there.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/weights/bucket_ends.h"

namespace tandem::weights {

// The bytes of tensor i of the manifest, at a fixed address.
using TensorMemory = std::function<absl::Span<std::byte>(int tensor)>;

// The bytes of tensor i in the version that a delta is applied on.
using BaseMemory = std::function<absl::Span<const std::byte>(int tensor)>;

// Called once a tensor when all its bytes are there and digested; an error ends the update.
using TensorFinished = std::function<absl::Status(int tensor)>;

// One update; the plan outlives it. The digests are read back from the tensors after they are
// complete, so they say what is there, not what passed by.
class TensorSink : public BucketSink {
 public:
  // INTERNAL names a tensor whose memory has another size than the plan.
  static absl::StatusOr<std::unique_ptr<TensorSink>> Create(const TransferPlan& plan,
                                                            TensorMemory memory,
                                                            TensorFinished finished = nullptr,
                                                            BaseMemory base = nullptr);

  absl::Status Collect(int bucket, at::Tensor buffer) override;
  absl::Span<std::byte> Place(int bucket, const BucketSpan& span) override;
  void Placed(int bucket, const BucketSpan& span) override;
  absl::Status Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) override;
  absl::Status Digest(int bucket) override;

  // Complete after the last bucket.
  const std::vector<TensorDigest>& digests() const { return digests_; }

 private:
  TensorSink(const TransferPlan& plan, TensorMemory memory, TensorFinished finished,
             BaseMemory base)
      : plan_(plan),
        memory_(std::move(memory)),
        finished_(std::move(finished)),
        base_(std::move(base)),
        missing_(plan.tensor_bytes) {}

  const TransferPlan& plan_;
  const TensorMemory memory_;
  const TensorFinished finished_;  // null: nobody asks
  const BaseMemory base_;          // null: there is none
  std::vector<int64_t> missing_;   // bytes of each tensor; -1 once it is digested
  std::vector<TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
