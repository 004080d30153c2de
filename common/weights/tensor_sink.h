// TensorSink: puts buckets into tensors that lie in memory, and digests what lies there.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "common/weights/transport.h"

namespace tandem::weights {

// The bytes of tensor i of the manifest, at a fixed address.
using TensorMemory = std::function<absl::Span<std::byte>(int tensor)>;

// Called once a tensor when all its bytes are there and digested; an error ends the update.
using TensorFinished = std::function<absl::Status(int tensor)>;

// One update; the plan outlives it. The digests are read back from the tensors after they are
// complete, so they say what is there, not what passed by.
class TensorSink : public BucketSink {
 public:
  // INTERNAL names a tensor whose memory has another size than the plan.
  static absl::StatusOr<std::unique_ptr<TensorSink>> Create(const TransferPlan& plan,
                                                            TensorMemory memory,
                                                            TensorFinished finished = nullptr);

  absl::Status Unpack(int bucket, const at::Tensor& buffer) override;
  absl::Status Digest(int bucket) override;

  // Complete after the last bucket.
  const std::vector<TensorDigest>& digests() const { return digests_; }

 private:
  TensorSink(const TransferPlan& plan, TensorMemory memory, TensorFinished finished)
      : plan_(plan), memory_(std::move(memory)), finished_(std::move(finished)) {}

  const TransferPlan& plan_;
  const TensorMemory memory_;
  const TensorFinished finished_;  // null: nobody asks
  std::vector<TensorDigest> digests_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_SINK_H_
