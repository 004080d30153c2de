#include "services/trainer/publish/reshard_sender.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/publish/shard_pieces.h"
#include "services/trainer/publish/wire_type.h"

namespace tandem::trainer {
namespace {

using weights::BucketSpan;
using weights::Message;
using weights::MessagePiece;
using Clock = weights::PhaseTimes::Clock;

// Bytes cast and digested at a time.
constexpr int64_t kCastPortionBytes = int64_t{64} << 10;

BucketSpan WholeOf(const Message& message) {
  return {0, static_cast<int>(message.pieces.size()), 0, message.size_bytes};
}

}  // namespace

std::vector<bool> ReshardLayout::Brings() const {
  std::vector<bool> brings;
  for (const auto& tensor : manifest.tensors()) {
    brings.push_back(!keeps_frozen || tensor.trainable());
  }
  return brings;
}

absl::StatusOr<ReshardLayout> MakeReshardLayout(const weights::Holdings& trainer,
                                                const weights::ModelLayout& rollout,
                                                weights::Manifest manifest, int64_t bucket_bytes,
                                                bool keeps_frozen) {
  ASSIGN_OR_RETURN(const at::ScalarType type, WireType(manifest));
  ReshardLayout layout;
  weights::ReshardOptions options;
  options.element_bytes = static_cast<int64_t>(c10::elementSize(type));
  options.bucket_bytes = bucket_bytes;
  weights::Holdings held = weights::RolloutHoldings(rollout);
  ASSIGN_OR_RETURN(layout.plan, weights::MakeReshardPlan(trainer, held, options));
  layout.counts = weights::FirstOfEachBox(rollout);
  for (const auto& rank : held.ranks) {
    auto& bytes = layout.tensor_bytes.emplace_back(held.num_tensors, 0);
    for (const weights::Holding& holding : rank) {
      bytes[holding.piece.tensor] += holding.piece.elements() * options.element_bytes;
    }
  }
  layout.manifest = std::move(manifest);
  layout.keeps_frozen = keeps_frozen;
  if (!keeps_frozen) return layout;
  const std::vector<bool> brings = layout.Brings();
  layout.unsent.resize(trainer.num_ranks());
  for (const Message& message : layout.plan.messages) {
    for (const MessagePiece& part : message.pieces) {
      const int tensor = part.piece.tensor;
      if (brings[tensor] || !layout.counts[message.to][tensor]) continue;
      layout.unsent[message.from].push_back({part.piece, part.from});
    }
  }
  for (auto& rank : held.ranks) {
    std::erase_if(rank,
                  [&](const weights::Holding& holding) { return !brings[holding.piece.tensor]; });
  }
  ASSIGN_OR_RETURN(layout.plan, weights::MakeReshardPlan(trainer, held, options));
  return layout;
}

absl::StatusOr<std::unique_ptr<ReshardSender>> ReshardSender::Create(const ReshardLayout& layout,
                                                                     RankShards shards, int sender,
                                                                     bool keeps_base) {
  auto out = absl::WrapUnique(new ReshardSender(layout, std::move(shards), sender, keeps_base));
  ASSIGN_OR_RETURN(out->wire_type_, WireType(layout.manifest));
  for (const Message& message : layout.plan.messages) {
    if (message.from != sender) continue;
    for (const MessagePiece& piece : message.pieces) {
      RETURN_IF_ERROR(CheckPiece(layout.manifest, out->shards_, piece.piece, piece.from));
    }
    out->messages_.push_back({&message, weights::SpansOf(weights::BucketOf(layout.plan, message),
                                                         layout.tensor_bytes[message.to])});
  }
  for (const auto& [piece, from] : out->Unsent()) {
    RETURN_IF_ERROR(CheckPiece(layout.manifest, out->shards_, piece, from));
  }
  out->kept_ = out->FindKept();
  if (keeps_base) {
    out->encoder_.emplace(out->ops_, layout.plan.element_bytes,
                          layout.plan.largest_message_bytes());
  }
  return out;
}

absl::Span<const ShardPiece> ReshardSender::Unsent() const {
  if (layout_.unsent.empty()) return {};
  return layout_.unsent[sender_];
}

std::vector<int> ReshardSender::FindKept() const {
  std::vector<int> kept(layout_.manifest.tensors_size(), -1);
  std::vector<int64_t> counted(kept.size());
  for (const Outgoing& outgoing : messages_) {
    for (const MessagePiece& part : outgoing.message->pieces) {
      if (layout_.counts[outgoing.message->to][part.piece.tensor]) {
        counted[part.piece.tensor] += part.piece.elements();
      }
    }
  }
  for (const ShardPiece& part : Unsent()) counted[part.piece.tensor] += part.piece.elements();
  for (size_t u = 0; u < shards_.units.size(); ++u) {
    const UnitShard& unit = shards_.units[u];
    if (unit.digests == nullptr || unit.computed.scalar_type() != wire_type_) continue;
    // Several ranks share the sending of what they all hold: no one's digest covers such a part.
    for (const ShardDigests::Part& part : unit.digests->parts()) {
      if (counted[part.tensor] == part.elements) kept[part.tensor] = static_cast<int>(u);
    }
  }
  return kept;
}

absl::Status ReshardSender::DigestUnsent(Sent& sent) const {
  std::vector<ShardPiece> pieces;
  for (const ShardPiece& part : Unsent()) {
    if (kept_[part.piece.tensor] < 0) pieces.push_back(part);
  }
  if (pieces.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<weights::DigestSum> sums,
                   DigestShards(layout_.manifest, shards_, pieces));
  for (size_t tensor = 0; tensor < sums.size(); ++tensor) sent.digests[tensor].Add(sums[tensor]);
  return absl::OkStatus();
}

absl::Status ReshardSender::AddKept(Sent& sent) const {
  for (size_t u = 0; u < shards_.units.size(); ++u) {
    const std::shared_ptr<ShardDigests>& digests = shards_.units[u].digests;
    if (digests == nullptr) continue;
    if (!digests->is_complete()) {
      return absl::InternalError(absl::StrCat("the digests of unit ", u,
                                              " do not cover all of rank ", shards_.rank,
                                              "'s shard: some masters were not digested"));
    }
    for (const ShardDigests::Part& part : digests->parts()) {
      if (kept_[part.tensor] == static_cast<int>(u)) sent.digests[part.tensor].Add(part.sum);
    }
  }
  return absl::OkStatus();
}

bool ReshardSender::Digests(int to, int tensor) const {
  return layout_.counts[to][tensor] && kept_[tensor] < 0;
}

std::string ReshardSender::NameOf(size_t index) const {
  const Message& message = *messages_[index].message;
  return absl::StrCat("bucket ", index, " of ", messages_.size(), " to replica rank ", message.to,
                      ", from ",
                      layout_.manifest.tensors(message.pieces.front().piece.tensor).name());
}

at::Tensor ReshardSender::InShard(const Message& message, const BucketSpan& span) const {
  const weights::Place& begin = message.pieces[span.first].from;
  const UnitShard& unit = shards_.units[begin.block];
  const at::Tensor& shard = wire_type_ == at::kFloat ? unit.master : unit.computed;
  if (!shard.defined() || shard.scalar_type() != wire_type_ || shard.device() != ops_.device()) {
    return {};
  }
  int64_t end = begin.offset;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const MessagePiece& part = message.pieces[i];
    const bool in_one = part.piece.repeat == 1 || part.from.stride == part.piece.length;
    if (!in_one || part.from.block != begin.block || part.from.offset != end) return {};
    end += part.piece.elements();
  }
  return shard.detach().view({-1}).narrow(0, begin.offset, end - begin.offset).view(at::kByte);
}

absl::Status ReshardSender::Pack(const Message& message, const BucketSpan& span, at::Tensor to,
                                 Sent& sent) const {
  const int64_t element = layout_.plan.element_bytes;
  const at::Tensor packed = to.view(wire_type_);
  const int64_t most = ops_.on_host() ? kCastPortionBytes / element : packed.numel();
  std::vector<ShardPiece> pieces;
  std::vector<weights::DigestRun> runs;
  int64_t begin = 0, end = 0;  // elements: of the portion
  const auto flush = [&]() -> absl::Status {
    RETURN_IF_ERROR(PackPieces(shards_, pieces, packed.narrow(0, begin, end - begin)));
    RETURN_IF_ERROR(runs.empty() ? absl::OkStatus()
                                 : ops_.Digest(runs, absl::MakeSpan(sent.digests)));
    pieces.clear();
    runs.clear();
    begin = end;
    return absl::OkStatus();
  };
  const auto* const bytes = static_cast<const std::byte*>(to.const_data_ptr());
  for (int i = span.first; i < span.first + span.count; ++i) {
    const MessagePiece& part = message.pieces[i];
    const bool counts = Digests(message.to, part.piece.tensor);
    weights::PieceCutter cutter(part.piece, part.from, part.to);
    while (cutter.left() > 0) {
      if (end - begin >= most) {
        RETURN_IF_ERROR(flush());
      }
      ShardPiece& piece = pieces.emplace_back();
      weights::Place unused;
      cutter.Take(most - (end - begin), piece.piece, piece.from, unused);
      if (counts && ops_.on_host()) {
        runs.push_back(RunOfPacked(piece.piece, element, bytes + end * element));
      }
      end += piece.piece.elements();
    }
  }
  RETURN_IF_ERROR(flush());
  for (int i = span.first; i < span.first + span.count; ++i) {
    Evict(shards_.units[message.pieces[i].from.block].master);
  }
  return absl::OkStatus();
}

absl::Status ReshardSender::Digest(const Message& message, absl::Span<const BucketSpan> spans,
                                   absl::Span<const at::Tensor> bytes, Sent& sent) const {
  const int64_t element = layout_.plan.element_bytes;
  std::vector<weights::DigestRun> runs;
  for (size_t s = 0; s < spans.size(); ++s) {
    const auto* at = static_cast<const std::byte*>(bytes[s].const_data_ptr());
    for (int i = spans[s].first; i < spans[s].first + spans[s].count; ++i) {
      const weights::Piece& piece = message.pieces[i].piece;
      if (Digests(message.to, piece.tensor)) runs.push_back(RunOfPacked(piece, element, at));
      at += piece.elements() * element;
    }
  }
  return ops_.Digest(runs, absl::MakeSpan(sent.digests));
}

absl::Status ReshardSender::Keep(size_t index, const BucketSpan& span, const at::Tensor& bytes) {
  return ops_.Transfer(bytes, base_[index].narrow(0, span.bucket_offset, span.size_bytes));
}

absl::StatusOr<at::Tensor> ReshardSender::PackedOf(Slot& slot) const {
  RETURN_IF_ERROR(weights::Provide(ops_, layout_.plan.largest_message_bytes(), slot.packed));
  return slot.packed;
}

absl::Status ReshardSender::SendWhole(comm::ProcessGroup& group, int to, size_t index, Slot& slot,
                                      Sent& sent, weights::PhaseTimes& times) {
  const auto& [message, spans] = messages_[index];
  std::vector<at::Tensor> leaving;
  // Spans that packing did not digest.
  std::vector<BucketSpan> left_spans;
  std::vector<at::Tensor> left;
  for (const BucketSpan& span : spans) {
    Clock::time_point now = Clock::now();
    at::Tensor bytes = InShard(*message, span);
    const bool digests_later = bytes.defined() || !ops_.on_host();
    if (!bytes.defined()) {
      ASSIGN_OR_RETURN(const at::Tensor packed, PackedOf(slot));
      bytes = packed.narrow(0, span.bucket_offset, span.size_bytes);
      RETURN_IF_ERROR(Pack(*message, span, bytes, sent));
      now = times.Worked("pack", now);
    }
    if (digests_later) {
      left_spans.push_back(span);
      left.push_back(bytes);
    }
    ASSIGN_OR_RETURN(auto work, group.Send(bytes, to, NameOf(index)));
    slot.works.push_back(std::move(work));
    leaving.push_back(std::move(bytes));
    times.Worked("wire", now);
  }
  Clock::time_point now = Clock::now();
  RETURN_IF_ERROR(Digest(*message, left_spans, left, sent));
  for (const at::Tensor& bytes : left) Evict(bytes);
  now = times.Worked("verify", now);
  sent.bytes += message->size_bytes;
  if (!keeps_base_) return absl::OkStatus();
  for (size_t i = 0; i < spans.size(); ++i) {
    RETURN_IF_ERROR(Keep(index, spans[i], leaving[i]));
  }
  times.Worked("encode", now);
  return absl::OkStatus();
}

absl::Status ReshardSender::SendDelta(comm::ProcessGroup& group, int to, size_t index, Slot& slot,
                                      Sent& sent, weights::PhaseTimes& times) {
  const Message& message = *messages_[index].message;
  const BucketSpan all = WholeOf(message);
  ASSIGN_OR_RETURN(const at::Tensor buffer, PackedOf(slot));
  const at::Tensor packed = buffer.narrow(0, 0, message.size_bytes);
  Clock::time_point now = Clock::now();
  RETURN_IF_ERROR(Pack(message, all, packed, sent));
  now = times.Worked("pack", now);
  ASSIGN_OR_RETURN(const weights::DeltaStats stats,
                   encoder_->Encode(base_[index], packed, slot.delta));
  now = times.Worked("encode", now);
  for (const at::Tensor& bytes :
       {slot.delta.size, slot.delta.coded.narrow(0, 0, stats.coded_bytes)}) {
    ASSIGN_OR_RETURN(auto work, group.Send(bytes, to, NameOf(index)));
    slot.works.push_back(std::move(work));
    sent.bytes += bytes.nbytes();
  }
  now = times.Worked("wire", now);
  sent.elements += stats.elements;
  sent.changed += stats.changed;
  if (!ops_.on_host()) {
    RETURN_IF_ERROR(Digest(message, {all}, {packed}, sent));
  }
  now = times.Worked("verify", now);
  base_[index].copy_(slot.delta.next);
  times.Worked("encode", now);
  return absl::OkStatus();
}

absl::StatusOr<ReshardSender::Sent> ReshardSender::Send(comm::ProcessGroup& group,
                                                        int first_receiver, bool delta,
                                                        weights::PhaseTimes& times) {
  if (delta && !has_base_) {
    return absl::FailedPreconditionError("a delta was asked for, but nothing was sent before");
  }
  const auto entered = ops_.Enter();
  has_base_ = false;  // until everything has been sent
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
    RETURN_IF_ERROR(comm::FinishAll(&group, slot.works)) << "phase wire, " << NameOf(i);
    times.Worked("wire", start);
    if (keeps_base_ && !base_[i].defined()) {
      ASSIGN_OR_RETURN(base_[i], weights::CpuOps().Buffer(message.size_bytes));
    }
    const int to = first_receiver + message.to;
    RETURN_IF_ERROR(delta ? SendDelta(group, to, i, slot, sent, times)
                          : SendWhole(group, to, i, slot, sent, times))
        << "phase wire, " << NameOf(i);
  }
  const Clock::time_point start = Clock::now();
  for (Slot& slot : slots_) RETURN_IF_ERROR(comm::FinishAll(&group, slot.works)) << "phase wire";
  const Clock::time_point sent_at = times.Worked("wire", start);
  RETURN_IF_ERROR(DigestUnsent(sent));
  RETURN_IF_ERROR(AddKept(sent));
  times.Worked("verify", sent_at);
  return sent;
}

}  // namespace tandem::trainer
