// ReshardSender: one trainer rank's part in an update: of each of its messages of the plan it casts
// the pieces that it holds to the wire type, and sends them to the rank that wants them.
//
// A delta is what changed since the bytes that were sent last; for that the sender keeps them, one
// shard in wire type. What it sent last is a base only where it is live everywhere, which the
// caller knows.
//
// What lies in a shard as it travels, in the master or in its copy in compute type, is sent from
// there; where the shard keeps its digest (shard_digests.h), it is not read here. Transfer memory
// is at most that of the messages under way (MessagesUnderWay); with deltas two buckets, as they
// are and coded. Deltas are coded by the CPU: on a device, what is packed comes to the host through
// page-locked memory of two messages, where the base is kept as well, and the delta goes back.
// Threads: the rank's collective thread.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/comm/process_group.h"
#include "common/weights/delta_codec.h"
#include "common/weights/device_ops.h"
#include "common/weights/digest.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/phase_times.h"
#include "common/weights/receive_table.h"
#include "common/weights/reshard_plan.h"
#include "services/trainer/publish/shard_gather_source.h"

namespace tandem::trainer {

// What both sides of an update know of it beforehand.
struct ReshardLayout {
  weights::Manifest manifest;  // of whole tensors, in wire type
  weights::ReshardPlan plan;   // from the trainer's ranks to a replica's
  // By receiver and tensor: whether the digest of what it gets counts. Every element of a tensor
  // counts once, so the senders' digests add up to the tensor's.
  std::vector<std::vector<bool>> counts;
  // By receiver and tensor: the bytes of what it holds.
  std::vector<std::vector<int64_t>> tensor_bytes;
};

// Of a mesh and replicas whose ranks have the parts of `rollout`. Errors: those of the plan.
absl::StatusOr<ReshardLayout> MakeReshardLayout(const weights::Holdings& trainer,
                                                const weights::ModelLayout& rollout,
                                                weights::Manifest manifest, int64_t bucket_bytes);

class ReshardSender {
 public:
  struct Sent {
    std::vector<weights::DigestSum> digests;  // by tensor, of what counts
    int64_t bytes = 0;                        // on the wire
    int64_t elements = 0;                     // of a delta
    int64_t changed = 0;
  };

  // `layout` outlives the sender; `shards` are those of rank `sender` of the plan. The masters are
  // read in place. `keeps_base`: deltas will be asked for. INVALID_ARGUMENT where a message lies
  // outside of the shards, or the wire type is none.
  static absl::StatusOr<std::unique_ptr<ReshardSender>> Create(const ReshardLayout& layout,
                                                               ShardedWeights shards, int sender,
                                                               bool keeps_base);

  // Receiver r of the plan is rank first_receiver + r of the group. Errors: those of the group,
  // which is then to be aborted, with the bucket; FAILED_PRECONDITION for a delta without a base.
  absl::StatusOr<Sent> Send(comm::ProcessGroup& group, int first_receiver, bool delta,
                            weights::PhaseTimes& times);

  // Forgets what was sent last, and its memory; the next delta has no base.
  void DropBase() {
    has_base_ = false;
    base_.clear();
    slots_.clear();
  }

 private:
  struct Slot {
    at::Tensor packed;  // bytes
    at::Tensor coded;   // bytes of the delta
    at::Tensor size;    // guarded, of the delta
    std::vector<std::unique_ptr<comm::Work>> works;
  };
  struct Outgoing {
    const weights::Message* message;
    std::vector<weights::BucketSpan> spans;  // of what travels in one message each
  };

  ReshardSender(const ReshardLayout& layout, ShardedWeights shards, bool keeps_base)
      : layout_(layout), shards_(std::move(shards)), ops_(*shards_.ops), keeps_base_(keeps_base) {}

  absl::StatusOr<Sent> SendMessages(comm::ProcessGroup& group, int first_receiver, bool delta,
                                    weights::PhaseTimes& times);
  absl::StatusOr<at::Tensor> PackedOf(Slot& slot) const;
  // What was packed, where the CPU reads it: after Encode().
  at::Tensor OnHost(const at::Tensor& packed) const;
  // Makes `packed`, of message `index`, the slot's delta and its size.
  absl::StatusOr<weights::DeltaStats> Encode(size_t index, const at::Tensor& packed, Slot& slot);
  // The span's bytes where they lie in the shard, if they do in wire type and in one range; else
  // undefined.
  at::Tensor InShard(const weights::Message& message, const weights::BucketSpan& span) const;
  // Casts the span's pieces to `to` and, on the host, digests what counts of them while it is in
  // the core's cache.
  absl::Status Pack(const weights::Message& message, const weights::BucketSpan& span, at::Tensor to,
                    Sent& sent) const;
  // Spans of the message, and the bytes of each.
  absl::Status Digest(const weights::Message& message, absl::Span<const weights::BucketSpan> spans,
                      absl::Span<const at::Tensor> bytes, Sent& sent) const;
  // Of each tensor, which unit's shard keeps the digest of just what this rank sends of it and
  // counts; -1: none.
  std::vector<int> FindKept() const;
  // What the ranks' sum lacks: of the tensors whose digest is kept.
  absl::Status AddKept(Sent& sent) const;
  // Whether what is sent of the tensor to the rank is to be digested.
  bool Digests(int to, int tensor) const;
  // Notes what was sent of the span, as the next delta's base.
  absl::Status Keep(size_t index, const weights::BucketSpan& span, const at::Tensor& bytes);
  absl::Status SendWhole(comm::ProcessGroup& group, int to, size_t index, Slot& slot, Sent& sent,
                         weights::PhaseTimes& times);
  absl::Status SendDelta(comm::ProcessGroup& group, int to, size_t index, Slot& slot, Sent& sent,
                         weights::PhaseTimes& times);
  std::string NameOf(size_t index) const;

  const ReshardLayout& layout_;
  const ShardedWeights shards_;
  weights::DeviceOps& ops_;
  const bool keeps_base_;
  at::ScalarType wire_type_ = at::kFloat;
  std::vector<Outgoing> messages_;  // this rank's, in order
  std::vector<Slot> slots_;         // by the message's number
  std::vector<at::Tensor> base_;    // by message, on the host: the bytes that were sent last
  // On a device: what the CPU works on, which is a message that was packed, and its delta.
  at::Tensor host_packed_, host_coded_;
  bool has_base_ = false;
  std::vector<int> kept_;  // as FindKept()
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_
