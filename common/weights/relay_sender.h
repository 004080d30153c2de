// RelaySender: passes on, to ranks of a replica that is split otherwise, what they want of each
// bucket that has arrived. The other end of it is a ReshardReceiver.
//
//   RelaySender relay(table, *group, staged, live, ops, packed);
//   RETURN_IF_ERROR(relay.Pass(bucket, times));   // in order, when the bucket is in its place
//   RETURN_IF_ERROR(relay.Finish(times));
//
// What lies in one range is sent from there. Transfer memory is at most that of the messages under
// way (MessagesUnderWay); of a delta two messages, as they are, were, and coded, by the CPU.
// Threads: the rank's data-plane thread. Errors: those of the group and of the ops, with the number
// of what was passed on; after one the group is to be aborted.
#ifndef TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_
#define TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "common/weights/device_ops.h"
#include "common/weights/packed_tensors.h"
#include "common/weights/phase_times.h"
#include "common/weights/relay_table.h"
#include "common/weights/tensor_sink.h"

namespace tandem::weights {

// One update. All that it is given outlives it.
class RelaySender {
 public:
  // `relayed` is one that CheckRelayed() accepts. `staged`: what arrives. `base`: what a delta goes
  // out from; null: all bytes are sent. `packed`: what holds the tensors that have no memory, or
  // null.
  RelaySender(const RelayedBuckets& relayed, int64_t element_bytes, comm::ProcessGroup& group,
              TensorMemory staged, BaseMemory base, DeviceOps& ops,
              const PackedTensors* packed = nullptr);

  // What becomes complete with the rank's own bucket number `bucket`. Returns when it is on its
  // way.
  absl::Status Pass(int bucket, PhaseTimes& times);
  // Returns when everything has left.
  absl::Status Finish(PhaseTimes& times);

 private:
  using Works = std::vector<std::unique_ptr<comm::Work>>;
  struct Slot {
    at::Tensor packed;  // bytes of ops_
    at::Tensor coded;   // bytes of the delta
    at::Tensor size;    // guarded, of the delta
    Works works;
  };

  absl::Status PassOne(const RelayedBucket& relayed, Slot& slot);
  absl::Status SendWhole(const RelayedBucket& relayed, Slot& slot);
  absl::Status SendDelta(const RelayedBucket& relayed, Slot& slot);
  // Pieces [first, first + count) where they lie, if that is one range; else undefined.
  at::Tensor InPlace(const RelayedBucket& relayed, int first, int count) const;
  // Copies such pieces, of what is staged or of the base, to their places in a buffer of the whole.
  enum class Of { kStaged, kBase };
  absl::Status Pack(const RelayedBucket& relayed, int first, int count, Of of, at::Tensor to) const;
  // The same for a piece of a packed tensor.
  absl::Status Unpack(const common::v1::BucketPiece& piece, Of of, std::byte* to) const;
  absl::Status Send(const at::Tensor& bytes, const RelayedBucket& relayed, Slot& slot);
  std::string Name() const;

  const RelayedBuckets& relayed_;
  const int element_bytes_;
  comm::ProcessGroup& group_;
  const TensorMemory staged_;
  const BaseMemory base_;
  DeviceOps& ops_;
  const PackedTensors* const packed_;
  int64_t largest_bytes_ = 0;
  int next_ = 0;  // of relayed_
  std::vector<Slot> slots_;
  at::Tensor base_packed_;  // of ops_
  // On a device: what of these the CPU works on.
  at::Tensor host_base_, host_packed_, host_coded_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_
