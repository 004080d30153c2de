#include "common/comm/shared_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tandem::comm {
namespace {

// Message kind in a notice: the slot holds the data's location; otherwise slots hold the data.
constexpr int32_t kLent = 1;
// Bytes of lent data copied per step: few enough to be in the core's cache for what follows.
constexpr int64_t kLentPortion = int64_t{256} << 10;
static_assert(kLentPortion % kTakenGrain == 0);

}  // namespace

void SharedTransfer::SetSize(Stream& stream, int64_t bytes, int64_t slot_bytes, bool at_least_one) {
  stream.bytes = bytes;
  stream.chunks_left = (bytes + slot_bytes - 1) / slot_bytes;
  if (at_least_one) stream.chunks_left = std::max<int64_t>(1, stream.chunks_left);
  chunks_left_ += stream.chunks_left;
}

void SharedTransfer::SetChunks(Stream& stream, int64_t chunks) {
  chunks_left_ += chunks - stream.chunks_left;
  stream.chunks_left = chunks;
}

void SharedTransfer::Advance(Stream& stream, int64_t bytes) {
  stream.next += bytes;
  --stream.chunks_left;
  --chunks_left_;
}

void SharedTransfer::SendToAll(const void* data, int64_t bytes) {
  Outgoing stream;
  stream.channel = &segment_->outbox(rank_);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) stream.readers.push_back(rank);
  }
  stream.data = static_cast<const std::byte*>(data);
  SetSize(stream, bytes, stream.channel->slot_bytes(), false);
  out_.push_back(std::move(stream));
}

void SharedTransfer::ReceiveFromAll(int from, void* data, int64_t bytes) {
  Incoming stream;
  stream.channel = &segment_->outbox(from);
  stream.reader = SharedSegment::OutboxReader(from, rank_);
  stream.from = from;
  stream.data = static_cast<std::byte*>(data);
  SetSize(stream, bytes, stream.channel->slot_bytes(), false);
  in_.push_back(stream);
}

void SharedTransfer::SendToOne(int to, const void* data, int64_t bytes) {
  Outgoing stream;
  stream.channel = &segment_->pair(rank_, to);
  stream.readers = {to};
  stream.data = static_cast<const std::byte*>(data);
  SetSize(stream, bytes, stream.channel->slot_bytes(), false);
  out_.push_back(std::move(stream));
}

void SharedTransfer::ReceiveFromOne(int from, void* data, int64_t bytes) {
  Incoming stream;
  stream.channel = &segment_->pair(from, rank_);
  stream.from = from;
  stream.data = static_cast<std::byte*>(data);
  SetSize(stream, bytes, stream.channel->slot_bytes(), false);
  in_.push_back(stream);
}

void SharedTransfer::SendMessage(int to, const Notice& notice, const void* data,
                                 PeerMemory& memory) {
  Outgoing stream;
  stream.channel = &segment_->messages(rank_, to);
  stream.readers = {to};
  stream.data = static_cast<const std::byte*>(data);
  stream.notice = notice;
  stream.memory = &memory;
  SetSize(stream, notice.bytes, stream.channel->slot_bytes(), true);
  out_.push_back(std::move(stream));
}

void SharedTransfer::ReceiveMessage(int from, void* data, int64_t bytes, PeerMemory& memory,
                                    MessageTaker* taker) {
  Incoming stream;
  stream.channel = &segment_->messages(from, rank_);
  stream.from = from;
  stream.data = static_cast<std::byte*>(data);
  stream.is_message = true;
  stream.memory = &memory;
  stream.taker = taker;
  SetSize(stream, bytes, stream.channel->slot_bytes(), true);
  in_.push_back(stream);
}

void SharedTransfer::Reduce(ReduceKind kind, ReduceType type, int64_t element_bytes,
                            const void* own, void* out, int64_t bytes, bool to_all) {
  Reduction stream;
  stream.kind = kind;
  stream.type = type;
  stream.element_bytes = element_bytes;
  stream.own = static_cast<const std::byte*>(own);
  stream.out = static_cast<std::byte*>(out);
  stream.after_sent = to_all;
  for (int rank = 0; rank < size_; ++rank) {
    stream.channels.push_back(rank == rank_ ? nullptr
                              : to_all      ? &segment_->outbox(rank)
                                            : &segment_->pair(rank, rank_));
    stream.readers.push_back(to_all ? SharedSegment::OutboxReader(rank, rank_) : 0);
  }
  SetSize(stream, bytes, segment_->outbox(rank_).slot_bytes(), false);
  reduction_ = std::move(stream);
}

bool SharedTransfer::Step(uint64_t readable) {
  waits_for_ = 0;
  bool moved = false;
  for (Outgoing& stream : out_) moved |= StepOut(stream);
  for (Incoming& stream : in_) moved |= StepIn(stream, readable);
  if (reduction_.has_value()) moved |= StepReduction(*reduction_, readable);
  return moved;
}

bool SharedTransfer::Lend(Outgoing& stream, Channel::Slot& slot) {
  if (stream.memory == nullptr) return false;
  const auto lent = stream.memory->Lend(stream.readers[0], stream.data, stream.bytes);
  if (!lent.has_value()) return false;
  slot.notice.kind = kLent;
  std::memcpy(slot.data(), &*lent, sizeof(*lent));
  SetChunks(stream, 1);
  stream.channel->Publish();
  stream.published = stream.channel->num_published();
  Ring(stream.readers[0]);
  return true;
}

bool SharedTransfer::StepOut(Outgoing& stream) {
  if (stream.chunks_left == 0) return false;
  if (stream.published.has_value()) {
    if (!stream.channel->HaveRead(*stream.published)) {
      waits_for_ |= Bit(stream.readers[0]);
      return false;
    }
    Advance(stream, stream.bytes);
    return true;
  }
  Channel::Slot* const slot = stream.channel->NextToWrite();
  if (slot == nullptr) {
    const uint64_t slow = stream.channel->SlowReaders();
    for (size_t r = 0; r < stream.readers.size(); ++r) {
      if ((slow & Bit(static_cast<int>(r))) != 0) waits_for_ |= Bit(stream.readers[r]);
    }
    return false;
  }
  const int64_t bytes = std::min(stream.channel->slot_bytes(), stream.bytes - stream.next);
  if (stream.notice.has_value() && stream.next == 0) {
    slot->notice = *stream.notice;
    if (Lend(stream, *slot)) return true;
  }
  if (bytes > 0) std::memcpy(slot->data(), stream.data + stream.next, static_cast<size_t>(bytes));
  stream.channel->Publish();
  for (const int reader : stream.readers) Ring(reader);
  Advance(stream, bytes);
  return true;
}

void SharedTransfer::Put(Incoming& stream, const std::byte* from, int64_t bytes) {
  if (bytes == 0) return;
  if (stream.taker != nullptr) {
    stream.taker->Take(stream.next, from, stream.data + stream.next, bytes,
                       /*stays=*/stream.lent != nullptr);
  } else {
    std::memcpy(stream.data + stream.next, from, static_cast<size_t>(bytes));
  }
}

bool SharedTransfer::StepLent(Incoming& stream) {
  const int64_t bytes = std::min(kLentPortion, stream.bytes - stream.next);
  Put(stream, stream.lent + stream.next, bytes);
  // The sender takes its memory back when the slot is released, so only after the last portion.
  if (stream.chunks_left == 1) {
    stream.channel->Release(stream.reader);
    Ring(stream.from);
  }
  Advance(stream, bytes);
  return true;
}

bool SharedTransfer::StepIn(Incoming& stream, uint64_t readable) {
  if (stream.chunks_left == 0) return false;
  if (stream.lent != nullptr) return StepLent(stream);
  const Channel::Slot* const slot =
      (readable & Bit(stream.from)) != 0 ? stream.channel->NextToRead(stream.reader) : nullptr;
  if (slot == nullptr) {
    waits_for_ |= Bit(stream.from);
    return false;
  }
  if (stream.is_message && stream.next == 0 && slot->notice.bytes != stream.bytes) {
    unexpected_ = slot->notice;
    return false;
  }
  if (stream.is_message && stream.next == 0 && slot->notice.kind == kLent) {
    LentBytes lent;
    // A copy: the peer could change the slot between the checks and the use.
    std::memcpy(&lent, slot->data(), sizeof(lent));
    const auto data = stream.memory->Borrow(stream.from, lent, stream.bytes);
    if (!data.ok()) {
      failure_ = data.status();
      return false;
    }
    stream.lent = *data;
    SetChunks(stream, (stream.bytes + kLentPortion - 1) / kLentPortion);
    return StepLent(stream);
  }
  const int64_t bytes = std::min(stream.channel->slot_bytes(), stream.bytes - stream.next);
  Put(stream, slot->data(), bytes);
  stream.channel->Release(stream.reader);
  Ring(stream.from);
  Advance(stream, bytes);
  return true;
}

bool SharedTransfer::StepReduction(Reduction& stream, uint64_t readable) {
  if (stream.chunks_left == 0) return false;
  // In place: a chunk must have been sent before its sum overwrites it.
  if (stream.after_sent && out_[0].chunks_left >= stream.chunks_left) return false;
  const void* sources[kMaxLocalRanks];
  uint64_t missing = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) {
      sources[rank] = stream.own + stream.next;
      continue;
    }
    const Channel::Slot* const slot = (readable & Bit(rank)) != 0
                                          ? stream.channels[rank]->NextToRead(stream.readers[rank])
                                          : nullptr;
    if (slot == nullptr) {
      missing |= Bit(rank);
    } else {
      sources[rank] = slot->data();
    }
  }
  waits_for_ |= missing;
  if (missing != 0) return false;
  const int64_t bytes = std::min(segment_->outbox(rank_).slot_bytes(), stream.bytes - stream.next);
  // Waits for every rank's chunk and adds in rank order: all ranks get the same bits, whatever came
  // first.
  comm::Reduce(stream.kind, stream.type,
               absl::Span<const void* const>(sources, static_cast<size_t>(size_)),
               stream.out + stream.next, bytes / stream.element_bytes);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    stream.channels[rank]->Release(stream.readers[rank]);
    Ring(rank);
  }
  Advance(stream, bytes);
  return true;
}

}  // namespace tandem::comm
