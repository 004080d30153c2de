// The `broadcast` transport: rank 0 of the group broadcasts every bucket to all others. With a
// BroadcastSplit it broadcasts only what all ranks hold. It sends the other bytes to the first rank
// that holds them, which forwards them to the next (broadcast_part.h).
//
// All ranks issue their operations in one order, so that streams that run them one by one (NCCL)
// cannot wait for each other in a circle: bucket by bucket, first the bytes for all, then the parts
// in the order of `BroadcastSplit::parts`, each along its chain. A rank that forwards therefore
// issues the send of a bucket before it issues anything of the next one.
#ifndef TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
#define TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_

#include <array>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/broadcast_part.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/device_ops.h"
#include "common/weights/link_times.h"

namespace tandem::weights {

// How the leader cuts the buckets of a plan; each list has one cut for each bucket.
struct BroadcastSplit {
  using Cuts = std::shared_ptr<const std::vector<BucketCut>>;
  struct Part {
    int to = 0;  // rank of the group
    Cuts cuts;
  };

  Cuts all;
  std::vector<Part> parts;

  // Bytes that leave the leader; those for all count once.
  int64_t SentBytes() const;
};

// A receiver's neighbours in the group, for the buckets of its part.
struct BroadcastChain {
  int fed_by = 0;
  int forward_to = 0;  // 0: nobody
};

// Allocates its two buffers, and two more for parts that are scattered over a bucket, with `ops`, which
// must outlive it; source and sink use the same device.
// Keeps the buffers between updates, except after an error, because the group may still use them.
//
// Threads: one object serves one rank, on its collective (or data-plane) thread. Errors: those of
// the group, with bucket and first tensor added, and those of source or sink. After an error, abort
// the group and create a new one.
class BroadcastTransport {
 public:
  explicit BroadcastTransport(DeviceOps& ops = CpuOps()) : ops_(ops) {}

  // Rank 0 only. Returns the digests of the sent bytes, computed while sending. `split`: null sends
  // every bucket whole to all ranks.
  absl::StatusOr<std::vector<TensorDigest>> Send(const TransferPlan& plan,
                                                 comm::ProcessGroup& group, BucketSource& source,
                                                 PhaseTimes& times,
                                                 const BroadcastSplit* split = nullptr);
  // All other ranks. `plan` has the rank's own buckets (RankShare::buckets). `links`, indexed by
  // rank of the group, may be null.
  absl::Status Receive(const TransferPlan& plan, comm::ProcessGroup& group, BucketSink& sink,
                       PhaseTimes& times, LinkTimes* links = nullptr,
                       const BroadcastChain& chain = {});

 private:
  // Messages of one bucket that are on their way.
  struct Flight {
    std::vector<std::unique_ptr<comm::Work>> works;
    PhaseTimes::Clock::time_point start;
  };
  // Finds the messages of a gathered bucket.
  class Packer;
  class Receiver;

  absl::StatusOr<std::vector<TensorDigest>> SendBuckets(const TransferPlan& plan,
                                                        comm::ProcessGroup& group,
                                                        BucketSource& source, PhaseTimes& times,
                                                        const BroadcastSplit* split);
  // Sends the gathered bucket.
  absl::Status Launch(const TransferPlan& plan, comm::ProcessGroup& group, int bucket,
                      const BroadcastSplit* split, Flight& flight, PhaseTimes& times);
  absl::Status MakeBuffers(int64_t bytes);
  void DropBuffers() { buffers_ = packed_ = {}; }
  // The bucket's prefix of buffer `bucket` % 2.
  at::Tensor Buffer(const TransferPlan& plan, int bucket) const;

  DeviceOps& ops_;
  std::array<at::Tensor, 2> buffers_;  // uint8
  std::array<at::Tensor, 2> packed_;   // likewise; of the leader
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_BROADCAST_TRANSPORT_H_
