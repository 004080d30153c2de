// The `broadcast` transport: rank 0 of the group broadcasts every bucket to all others.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_

#include <array>
#include <vector>

#include "common/weights/transport.h"

namespace tandem::weights {

// Keeps its two buffers from one update to the next, except after an error: then the group may
// still hold them.
class BroadcastTransport : public Transport {
 public:
  absl::string_view name() const override { return "broadcast"; }
  absl::StatusOr<std::vector<TensorDigest>> Send(const TransferPlan& plan,
                                                 comm::ProcessGroup& group, BucketSource& source,
                                                 PhaseTimes& times) override;
  absl::Status Receive(const TransferPlan& plan, comm::ProcessGroup& group, BucketSink& sink,
                       PhaseTimes& times) override;

 private:
  absl::StatusOr<std::vector<TensorDigest>> SendBuckets(const TransferPlan& plan,
                                                        comm::ProcessGroup& group,
                                                        BucketSource& source, PhaseTimes& times);
  absl::Status ReceiveBuckets(const TransferPlan& plan, comm::ProcessGroup& group, BucketSink& sink,
                              PhaseTimes& times);
  absl::Status MakeBuffers(int64_t bytes);
  // The part of buffer `bucket` % 2 that the bucket fills.
  at::Tensor Buffer(const TransferPlan& plan, int bucket) const;

  std::array<at::Tensor, 2> buffers_;  // uint8
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
