// The `broadcast` transport: rank 0 of the group broadcasts every bucket to all others.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_

#include <array>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/device_ops.h"
#include "common/weights/link_times.h"

namespace tandem::weights {

// Allocates its two buffers with `ops`, which must outlive it; source and sink use the same device.
// Keeps the buffers between updates, except after an error, because the group may still use them.
//
// Threads: one object serves one rank, on its collective (or data-plane) thread. Errors: those of
// the group, with bucket and first tensor added, and those of source or sink. After an error, abort
// the group and create a new one.
class BroadcastTransport {
 public:
  explicit BroadcastTransport(DeviceOps& ops = CpuOps()) : ops_(ops) {}

  // Rank 0 only. Returns the digests of the sent bytes, computed while sending.
  absl::StatusOr<std::vector<TensorDigest>> Send(const TransferPlan& plan,
                                                 comm::ProcessGroup& group, BucketSource& source,
                                                 PhaseTimes& times);
  // All other ranks. `links`, indexed by rank of the group, may be null.
  absl::Status Receive(const TransferPlan& plan, comm::ProcessGroup& group, BucketSink& sink,
                       PhaseTimes& times, LinkTimes* links = nullptr);

 private:
  absl::StatusOr<std::vector<TensorDigest>> SendBuckets(const TransferPlan& plan,
                                                        comm::ProcessGroup& group,
                                                        BucketSource& source, PhaseTimes& times);
  absl::Status ReceiveBuckets(const TransferPlan& plan, comm::ProcessGroup& group, BucketSink& sink,
                              PhaseTimes& times, LinkTimes* links);
  absl::Status MakeBuffers(int64_t bytes);
  // The bucket's prefix of buffer `bucket` % 2.
  at::Tensor Buffer(const TransferPlan& plan, int bucket) const;

  DeviceOps& ops_;
  std::array<at::Tensor, 2> buffers_;  // uint8
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
