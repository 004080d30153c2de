// ReshardReceiver: takes a rank's buckets from those who send them, in the plan's order, and passes
// them on to the next of a chain as they arrive, as they are or cut anew (relay_sender.h).
//
// Of a bucket each span is a message, received straight into its place where the sink has one. A
// delta's bucket comes as two messages: its coded size, eight bytes, and the delta
// (delta_format.md). It is passed on as it came.
//
// Transfer memory is at most that of the messages under way (MessagesUnderWay), and none where all
// spans have places; with deltas two buckets, and a third in which they are applied. It is memory
// of `ops`, and so is the sink's. Deltas are applied by the CPU: on a device, delta and base come
// to the host for it and the result goes back, through page-locked memory of two buckets.
// Threads: one object serves one rank, on its data-plane thread. Errors: those of the groups and of
// the sink, with the bucket; DATA_LOSS for a delta that is none. After an error the groups are to
// be aborted.
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
  comm::ProcessGroup* from = nullptr;     // the buckets' sources are its ranks
  std::optional<int> fed_by;              // its rank that passes on all of them, if one does
  comm::ProcessGroup* forward = nullptr;  // null: nobody is fed
  int forward_to = 0;                     // its rank that is
  RelaySender* relay = nullptr;           // instead of `forward`: who is fed is split otherwise
  LinkTimes* times = nullptr;             // by rank of `from`; null: nobody wants to know
};

class ReshardReceiver {
 public:
  // `ops` outlive it.
  explicit ReshardReceiver(DeviceOps& ops = CpuOps()) : ops_(ops) {}

  absl::Status Receive(const TransferPlan& plan, const ReceiveLinks& links, bool delta,
                       BucketSink& sink, PhaseTimes& times);

 private:
  using Works = std::vector<std::unique_ptr<comm::Work>>;

  absl::Status ReceiveWhole(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                            PhaseTimes& times);
  absl::Status ReceiveDeltas(const TransferPlan& plan, const ReceiveLinks& links, BucketSink& sink,
                             PhaseTimes& times);
  // INVALID_ARGUMENT where it is no rank of the group.
  static absl::StatusOr<int> SourceOf(const TransferPlan& plan, const ReceiveLinks& links,
                                      int bucket);
  // Applies the delta in `coded` to `next`, which holds the base; both are ops_'.
  absl::Status Apply(const at::Tensor& coded, const at::Tensor& next);
  // What the words that were received into `words`, ops_' memory, say.
  absl::StatusOr<int64_t> ReadSize(const at::Tensor& words);

  DeviceOps& ops_;
  // Kept from one update to the next, except after an error: then a group may still hold them.
  std::vector<at::Tensor> buffers_;  // uint8, of the messages under way
  at::Tensor base_;                  // uint8: where deltas are applied
  // On a device: what of these the CPU works on.
  at::Tensor host_coded_, host_base_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RESHARD_RECEIVER_H_
