#include "services/trainer/publish/reshard_sender.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/comm/guarded_words.h"
#include "common/status/status_macros.h"
#include "common/weights/delta_codec.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/publish/shard_pieces.h"
#include "services/trainer/publish/wire_type.h"

namespace tandem::trainer {
namespace {

using weights::BucketSpan;
using weights::Message;
using weights::MessagePiece;
using Clock = weights::PhaseTimes::Clock;

absl::Span<std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

}  // namespace

absl::StatusOr<ReshardLayout> MakeReshardLayout(const weights::Holdings& trainer,
                                                const weights::ModelLayout& rollout,
                                                weights::Manifest manifest, int64_t bucket_bytes) {
  ASSIGN_OR_RETURN(const at::ScalarType type, WireType(manifest));
  ReshardLayout layout;
  weights::ReshardOptions options;
  options.element_bytes = static_cast<int64_t>(c10::elementSize(type));
  options.bucket_bytes = bucket_bytes;
  const weights::Holdings held = weights::RolloutHoldings(rollout);
  ASSIGN_OR_RETURN(layout.plan, weights::MakeReshardPlan(trainer, held, options));
  layout.counts = weights::FirstOfEachBox(rollout);
  for (const auto& rank : held.ranks) {
    auto& bytes = layout.tensor_bytes.emplace_back(held.num_tensors, 0);
    for (const weights::Holding& holding : rank) {
      bytes[holding.piece.tensor] += holding.piece.elements() * options.element_bytes;
    }
  }
  layout.manifest = std::move(manifest);
  return layout;
}

absl::StatusOr<std::unique_ptr<ReshardSender>> ReshardSender::Create(const ReshardLayout& layout,
                                                                     ShardedWeights shards,
                                                                     int sender, bool keeps_base) {
  auto out = absl::WrapUnique(new ReshardSender(layout, std::move(shards), keeps_base));
  ASSIGN_OR_RETURN(out->wire_type_, WireType(layout.manifest));
  for (const Message& message : layout.plan.messages) {
    if (message.from != sender) continue;
    for (const MessagePiece& piece : message.pieces) {
      RETURN_IF_ERROR(CheckPiece(layout.manifest, out->shards_, piece.piece, piece.from));
    }
    out->messages_.push_back({&message, weights::SpansOf(weights::BucketOf(layout.plan, message),
                                                         layout.tensor_bytes[message.to])});
  }
  return out;
}

std::string ReshardSender::NameOf(size_t index) const {
  const Message& message = *messages_[index].message;
  return absl::StrCat("bucket ", index, " of ", messages_.size(), " to replica rank ", message.to,
                      ", from ",
                      layout_.manifest.tensors(message.pieces.front().piece.tensor).name());
}

at::Tensor ReshardSender::InMaster(const Message& message, const BucketSpan& span) const {
  if (wire_type_ != at::kFloat) return {};
  const weights::Place& begin = message.pieces[span.first].from;
  int64_t end = begin.offset;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const MessagePiece& part = message.pieces[i];
    const bool in_one = part.piece.repeat == 1 || part.from.stride == part.piece.length;
    if (!in_one || part.from.block != begin.block || part.from.offset != end) return {};
    end += part.piece.elements();
  }
  return shards_.units[begin.block]
      .master.detach()
      .view({-1})
      .narrow(0, begin.offset, end - begin.offset)
      .view(at::kByte);
}

void ReshardSender::Pack(const Message& message, const BucketSpan& span, at::Tensor to) const {
  const at::Tensor elements = to.view(wire_type_);
  int64_t done = 0;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const MessagePiece& part = message.pieces[i];
    PackPiece(shards_, part.piece, part.from, elements.narrow(0, done, part.piece.elements()));
    done += part.piece.elements();
    Rest(shards_.units[part.from.block].master);
  }
}

void ReshardSender::Digest(const Message& message, const BucketSpan& span, const at::Tensor& bytes,
                           Sent& sent) const {
  const int64_t element = layout_.plan.element_bytes;
  const absl::Span<const std::byte> all = BytesOf(bytes);
  size_t done = 0;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const weights::Piece& piece = message.pieces[i].piece;
    const size_t size = static_cast<size_t>(piece.elements() * element);
    if (layout_.counts[message.to][piece.tensor]) {
      DigestPiece(piece, element, all.subspan(done, size), sent.digests[piece.tensor]);
    }
    done += size;
  }
}

const at::Tensor& ReshardSender::PackedOf(Slot& slot) const {
  if (!slot.packed.defined()) {
    slot.packed = at::empty({layout_.plan.largest_message_bytes()}, at::kByte);
  }
  return slot.packed;
}

absl::Status ReshardSender::Land(Slot& slot) {
  absl::Status status;
  for (auto& work : slot.works) status.Update(work->Wait());
  slot.works.clear();
  return status;
}

absl::Status ReshardSender::SendWhole(comm::ProcessGroup& group, int to, size_t index, Slot& slot,
                                      Sent& sent, weights::PhaseTimes& times) {
  const auto& [message, spans] = messages_[index];
  std::vector<at::Tensor> leaving;
  for (const BucketSpan& span : spans) {
    Clock::time_point now = Clock::now();
    at::Tensor bytes = InMaster(*message, span);
    if (!bytes.defined()) {
      bytes = PackedOf(slot).narrow(0, span.bucket_offset, span.size_bytes);
      Pack(*message, span, bytes);
      now = times.Worked("pack", now);
    }
    ASSIGN_OR_RETURN(auto work, group.Send(bytes, to, NameOf(index)));
    slot.works.push_back(std::move(work));
    leaving.push_back(std::move(bytes));
    times.Worked("wire", now);
  }
  Clock::time_point now = Clock::now();
  for (size_t i = 0; i < spans.size(); ++i) Digest(*message, spans[i], leaving[i], sent);
  now = times.Worked("verify", now);
  sent.bytes += message->size_bytes;
  if (!keeps_base_) return absl::OkStatus();
  for (size_t i = 0; i < spans.size(); ++i) {
    base_[index].narrow(0, spans[i].bucket_offset, spans[i].size_bytes).copy_(leaving[i]);
  }
  times.Worked("encode", now);
  return absl::OkStatus();
}

absl::Status ReshardSender::SendDelta(comm::ProcessGroup& group, int to, size_t index, Slot& slot,
                                      Sent& sent, weights::PhaseTimes& times) {
  const Message& message = *messages_[index].message;
  const BucketSpan all{0, static_cast<int>(message.pieces.size()), 0, message.size_bytes};
  at::Tensor packed = PackedOf(slot).narrow(0, 0, message.size_bytes);
  const int64_t room = weights::MaxEncodedBytes(message.size_bytes);
  if (!slot.coded.defined() || slot.coded.numel() < room) slot.coded = at::empty({room}, at::kByte);
  Clock::time_point now = Clock::now();
  Pack(message, all, packed);
  now = times.Worked("pack", now);
  ASSIGN_OR_RETURN(
      const weights::DeltaStats stats,
      weights::EncodeDelta(BytesOf(base_[index]), BytesOf(packed),
                           static_cast<int>(layout_.plan.element_bytes), BytesOf(slot.coded)));
  slot.size = comm::GuardWords<1>({stats.coded_bytes});
  now = times.Worked("encode", now);
  for (const at::Tensor& bytes : {slot.size, slot.coded.narrow(0, 0, stats.coded_bytes)}) {
    ASSIGN_OR_RETURN(auto work, group.Send(bytes, to, NameOf(index)));
    slot.works.push_back(std::move(work));
    sent.bytes += bytes.nbytes();
  }
  now = times.Worked("wire", now);
  sent.elements += stats.elements;
  sent.changed += stats.changed;
  Digest(message, all, packed, sent);
  now = times.Worked("verify", now);
  base_[index].copy_(packed);
  times.Worked("encode", now);
  return absl::OkStatus();
}

absl::StatusOr<ReshardSender::Sent> ReshardSender::Send(comm::ProcessGroup& group,
                                                        int first_receiver, bool delta,
                                                        weights::PhaseTimes& times) {
  if (delta && !has_base_) {
    return absl::FailedPreconditionError("a delta was asked for, but nothing was sent before");
  }
  has_base_ = false;  // until all has been sent
  auto sent = SendMessages(group, first_receiver, delta, times);
  if (!sent.ok()) {
    // The group may still read the buffers.
    slots_.clear();
    return sent.status();
  }
  has_base_ = keeps_base_;
  return sent;
}

absl::StatusOr<ReshardSender::Sent> ReshardSender::SendMessages(comm::ProcessGroup& group,
                                                                int first_receiver, bool delta,
                                                                weights::PhaseTimes& times) {
  Sent sent;
  sent.digests.resize(layout_.manifest.tensors_size());
  if (keeps_base_) base_.resize(messages_.size());
  slots_.resize(delta ? 2 : weights::MessagesUnderWay(layout_.plan.largest_message_bytes()));
  for (size_t i = 0; i < messages_.size(); ++i) {
    const Message& message = *messages_[i].message;
    Slot& slot = slots_[i % slots_.size()];
    const Clock::time_point start = Clock::now();
    RETURN_IF_ERROR(Land(slot)) << "phase wire, " << NameOf(i);
    times.Worked("wire", start);
    if (keeps_base_ && !base_[i].defined()) base_[i] = at::empty({message.size_bytes}, at::kByte);
    const int to = first_receiver + message.to;
    RETURN_IF_ERROR(delta ? SendDelta(group, to, i, slot, sent, times)
                          : SendWhole(group, to, i, slot, sent, times))
        << "phase wire, " << NameOf(i);
  }
  const Clock::time_point start = Clock::now();
  for (Slot& slot : slots_) RETURN_IF_ERROR(Land(slot)) << "phase wire";
  times.Worked("wire", start);
  return sent;
}

}  // namespace tandem::trainer
