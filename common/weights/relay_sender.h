// RelaySender: forwards to ranks of a replica with another split their parts of each bucket that
// has arrived. The receiving end is a ReshardReceiver.
//
//   RelaySender relay(table, /*element_bytes=*/2, *group, memory, /*delta=*/false);
//   RETURN_IF_ERROR(relay.Pass(bucket, times));   // in order, when the bucket is in its place
//   RETURN_IF_ERROR(relay.Finish(times));
//
// Sends contiguous data without a copy. Transfer memory is at most that of the messages in flight
// (MessagesUnderWay); for a delta, two messages as new values, base values and code, on the CPU.
// Threads: the rank's data-plane thread. Errors: those of the group and of the ops, with the number
// of the relayed bucket; after an error, abort the group.
#ifndef TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_
#define TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/process_group.h"
#include "common/weights/delta_encoder.h"
#include "common/weights/device_ops.h"
#include "common/weights/phase_times.h"
#include "common/weights/relay_table.h"
#include "common/weights/update_memory.h"

namespace tandem::weights {

// Serves one update. All arguments must outlive it.
class RelaySender {
 public:
  // `relayed` must pass CheckRelayed(). Sends of the staged version in `memory` all bytes, or with
  // `delta` the changes since the live version.
  RelaySender(const RelayedBuckets& relayed, int64_t element_bytes, comm::ProcessGroup& group,
              UpdateMemory& memory, bool delta);

  // Sends what becomes complete with the rank's own bucket `bucket`. Returns once it is in flight.
  absl::Status Pass(int bucket, PhaseTimes& times);
  // Blocks until everything is sent.
  absl::Status Finish(PhaseTimes& times);

 private:
  using Works = std::vector<std::unique_ptr<comm::Work>>;
  struct Slot {
    at::Tensor packed;  // bytes, in ops_' memory
    EncodedDelta delta;
    Works works;
  };

  absl::Status PassOne(const RelayedBucket& relayed, Slot& slot);
  absl::Status SendWhole(const RelayedBucket& relayed, Slot& slot);
  absl::Status SendDelta(const RelayedBucket& relayed, Slot& slot);
  // Pieces [first, first + count) in place if they are one memory range; else undefined.
  at::Tensor InPlace(const RelayedBucket& relayed, int first, int count) const;
  // Copies such pieces, staged or base, to their offsets in a buffer of the whole bucket.
  enum class Of { kStaged, kBase };
  absl::Status Pack(const RelayedBucket& relayed, int first, int count, Of of, at::Tensor to) const;
  // The same for a piece of a packed tensor.
  absl::Status Unpack(const common::v1::BucketPiece& piece, Of of, std::byte* to) const;
  absl::Status Send(const at::Tensor& bytes, const RelayedBucket& relayed, Slot& slot);
  std::string Name() const;

  const RelayedBuckets& relayed_;
  comm::ProcessGroup& group_;
  UpdateMemory& memory_;
  DeviceOps& ops_;
  const bool delta_;
  int64_t largest_bytes_ = 0;
  int next_ = 0;  // index into relayed_
  std::vector<Slot> slots_;
  at::Tensor base_packed_;  // in ops_' memory
  std::optional<DeltaEncoder> encoder_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_RELAY_SENDER_H_
