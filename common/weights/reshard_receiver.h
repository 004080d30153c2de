// ReshardReceiver: receives a rank's buckets in plan order and forwards them along the chain as
// they arrive, unchanged or cut for another split (relay_sender.h).
//
// Each span of a bucket is a message, received directly into its place if the sink has one. A
// delta's bucket is two messages: its coded size, eight bytes, and the delta (delta_format.md).
// Deltas are forwarded unchanged.
//
// Transfer memory is at most that of the messages in flight (MessagesUnderWay), and none if all
// spans have places; with deltas two buckets, and a third in which they are applied. Buffers and
// the sink's memory belong to `ops`. The CPU applies deltas: on a device, delta and base are copied
// to the host and the result back, through page-locked memory of two buckets. Threads: one object
// serves one rank, on its data-plane thread. Errors: those of the groups and of the sink, with the
// bucket; DATA_LOSS for a malformed delta. After an error, abort the groups.
#ifndef TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
#define TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "common/weights/bucket_ends.h"
#include "common/weights/device_ops.h"
#include "common/weights/link_times.h"
#include "common/weights/relay_sender.h"

namespace tandem::weights {

// The rank's neighbours in an update.
struct ReceiveLinks {
  comm::ProcessGroup* from = nullptr;     // bucket sources are its ranks
  std::optional<int> fed_by;              // its rank that forwards all buckets, if one does
  comm::ProcessGroup* forward = nullptr;  // null: no forwarding
  int forward_to = 0;                     // rank of `forward` to send to
  RelaySender* relay = nullptr;           // instead of `forward`, for another split
  LinkTimes* times = nullptr;             // by rank of `from`; null: not measured
};

class ReshardReceiver {
 public:
  // `ops` must outlive it.
  explicit ReshardReceiver(DeviceOps& ops = CpuOps()) : ops_(ops) {}

  absl::Status Receive(const TransferPlan& plan, const ReceiveLinks& links, bool delta,
                       BucketSink& sink, PhaseTimes& times);

 private:
  using Works = std::vector<std::unique_ptr<comm::Work>>;

  absl::Status ReceiveWhole(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                            PhaseTimes& times);
  absl::Status ReceiveDeltas(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                             PhaseTimes& times);
  // INVALID_ARGUMENT if it is no rank of the group.
  static absl::StatusOr<int> SourceOf(const TransferPlan& plan, const ReceiveLinks& links,
                                      int bucket);
  // Applies the delta in `coded` to `next`, which holds the base; both in ops_' memory.
  absl::Status Apply(const at::Tensor& coded, const at::Tensor& next);
  // Decodes the size received into `words`, which is in ops_' memory.
  absl::StatusOr<int64_t> ReadSize(const at::Tensor& words);

  DeviceOps& ops_;
  // Kept between updates, except after an error, because a group may still use them.
  std::vector<at::Tensor> buffers_;  // uint8, for the messages in flight
  at::Tensor base_;                  // uint8: where deltas are applied
  // On a device: host copies of these for applying deltas.
  at::Tensor host_coded_, host_base_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
