// ReshardSender: one trainer rank's part in an update. For each of its messages in the plan, it
// casts its pieces to the wire type and sends them to the receiving rank.
//
// A delta holds the changes since the bytes that were sent last, so the sender keeps those: one
// shard in wire type. They are a valid base only if they are live everywhere, which the caller
// checks.
//
// Pieces that already lie in a shard in wire type, in the master or in its compute-type copy, are
// sent from there without a copy; if the shard keeps its digest (shard_digests.h), they are not
// read here either. Transfer memory is at most that of the messages in flight (MessagesUnderWay);
// with deltas two buckets, raw and coded. The CPU codes deltas: on a device, packed bytes come to
// the host through page-locked memory of two messages, where the base is kept too, and the delta
// goes back. Threads: the rank's collective thread.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/comm/process_group.h"
#include "common/weights/delta_encoder.h"
#include "common/weights/device_ops.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/phase_times.h"
#include "common/weights/receive_table.h"
#include "common/weights/reshard_plan.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/publish/rank_shards.h"
#include "services/trainer/publish/shard_pieces.h"

namespace tandem::trainer {

// The layout that both sides of an update know beforehand.
struct ReshardLayout {
  weights::Manifest manifest;  // of whole tensors, in wire type
  weights::ReshardPlan plan;   // from the trainer's ranks to a replica's
  // By receiver and tensor: whether the digest of the received part counts. Every element counts
  // once, so the senders' digests add up to the tensor's.
  std::vector<std::vector<bool>> counts;
  // By receiver and tensor: the bytes the receiver holds.
  std::vector<std::vector<int64_t>> tensor_bytes;
  // If the receivers keep the frozen tensors, the parts of these that count, by the rank that sends
  // them in a whole update. Here it only digests them: so the leader compares every tensor's digest
  // with what the trainer has now.
  bool keeps_frozen = false;
  std::vector<std::vector<ShardPiece>> unsent;

  // By tensor, whether the plan brings it.
  std::vector<bool> Brings() const;
};

// Layout for the trainer's mesh and replicas whose ranks hold the parts of `rollout`.
// `keeps_frozen`: the plan brings the trainable tensors only. Errors: the plan's.
absl::StatusOr<ReshardLayout> MakeReshardLayout(const weights::Holdings& trainer,
                                                const weights::ModelLayout& rollout,
                                                weights::Manifest manifest, int64_t bucket_bytes,
                                                bool keeps_frozen = false);

class ReshardSender {
 public:
  struct Sent {
    std::vector<weights::DigestSum> digests;  // by tensor, of the parts that count
    int64_t bytes = 0;                        // on the wire
    int64_t elements = 0;                     // of a delta
    int64_t changed = 0;
  };

  // `layout` outlives the sender; `shards` are those of rank `sender` of the plan. Reads the
  // masters in place. `keeps_base`: deltas will be sent. INVALID_ARGUMENT if a message lies outside
  // of the shards, or the wire type is invalid.
  static absl::StatusOr<std::unique_ptr<ReshardSender>> Create(const ReshardLayout& layout,
                                                               RankShards shards, int sender,
                                                               bool keeps_base);

  // Receiver r of the plan is rank first_receiver + r of the group. Errors: the group's, naming the
  // bucket, after which the caller aborts the group; FAILED_PRECONDITION for a delta without a
  // base.
  absl::StatusOr<Sent> Send(comm::ProcessGroup& group, int first_receiver, bool delta,
                            weights::PhaseTimes& times);

  // Drops the bytes that were sent last and frees their memory; the next delta has no base.
  void DropBase() {
    has_base_ = false;
    base_.clear();
    slots_.clear();
  }

 private:
  struct Slot {
    at::Tensor packed;  // bytes
    weights::EncodedDelta delta;
    std::vector<std::unique_ptr<comm::Work>> works;
  };
  struct Outgoing {
    const weights::Message* message;
    std::vector<weights::BucketSpan> spans;  // each travels as one message
  };

  ReshardSender(const ReshardLayout& layout, RankShards shards, int sender, bool keeps_base)
      : layout_(layout),
        shards_(std::move(shards)),
        sender_(sender),
        ops_(*shards_.ops),
        keeps_base_(keeps_base) {}

  absl::StatusOr<Sent> SendMessages(comm::ProcessGroup& group, int first_receiver, bool delta,
                                    weights::PhaseTimes& times);
  absl::StatusOr<at::Tensor> PackedOf(Slot& slot) const;
  // The span's bytes in place, if the shard holds them in wire type and in one range; else
  // undefined.
  at::Tensor InShard(const weights::Message& message, const weights::BucketSpan& span) const;
  // Casts the span's pieces to `to` and, on the host, digests those that count while they are in
  // the core's cache.
  absl::Status Pack(const weights::Message& message, const weights::BucketSpan& span, at::Tensor to,
                    Sent& sent) const;
  // `bytes`: the bytes of each span of the message.
  absl::Status Digest(const weights::Message& message, absl::Span<const weights::BucketSpan> spans,
                      absl::Span<const at::Tensor> bytes, Sent& sent) const;
  // By tensor, the unit whose shard keeps the digest of exactly what this rank sends of it and
  // counts; -1: none.
  std::vector<int> FindKept() const;
  // Digests the parts that are not sent, unless a shard keeps their digests.
  absl::Status DigestUnsent(Sent& sent) const;
  // Adds the kept digests, of the tensors that Digest() skipped.
  absl::Status AddKept(Sent& sent) const;
  // Whether to digest the part of the tensor that is sent to the rank.
  bool Digests(int to, int tensor) const;
  // Stores the sent bytes of the span as the next delta's base.
  absl::Status Keep(size_t index, const weights::BucketSpan& span, const at::Tensor& bytes);
  absl::Status SendWhole(comm::ProcessGroup& group, int to, size_t index, Slot& slot, Sent& sent,
                         weights::PhaseTimes& times);
  absl::Status SendDelta(comm::ProcessGroup& group, int to, size_t index, Slot& slot, Sent& sent,
                         weights::PhaseTimes& times);
  // The unsent pieces of this rank.
  absl::Span<const ShardPiece> Unsent() const;
  std::string NameOf(size_t index) const;

  const ReshardLayout& layout_;
  const RankShards shards_;
  const int sender_;
  weights::DeviceOps& ops_;
  const bool keeps_base_;
  at::ScalarType wire_type_ = at::kFloat;
  std::vector<Outgoing> messages_;  // this rank's, in order
  std::vector<Slot> slots_;         // by the message's number
  std::vector<at::Tensor> base_;    // by message, on the host: the bytes that were sent last
  std::optional<weights::DeltaEncoder> encoder_;
  bool has_base_ = false;
  std::vector<int> kept_;  // result of FindKept()
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RESHARD_SENDER_H_
