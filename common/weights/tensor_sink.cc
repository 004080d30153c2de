#include "common/weights/tensor_sink.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/receive_table.h"
#include "common/weights/staged_range.h"
#include "common/weights/tensor_digests.h"

namespace tandem::weights {
namespace {

// Bytes put at once: they stay in the core's cache from one pass over them to the next.
constexpr int64_t kPortionBytes = int64_t{256} << 10;

// The runs of a piece, in either direction between bucket and tensor.
CopyRun RunOf(const common::v1::BucketPiece& piece, std::byte* to, int64_t to_stride,
              const std::byte* from, int64_t from_stride) {
  CopyRun run;
  run.repeat = std::max<int64_t>(1, piece.repeat());
  run.size = piece.size_bytes() / run.repeat;
  run.to = to;
  run.to_stride = to_stride;
  run.from = from;
  run.from_stride = from_stride;
  return run;
}

int64_t RunBytes(const common::v1::BucketPiece& piece) {
  return piece.size_bytes() / std::max<int64_t>(1, piece.repeat());
}

// Calls body(offset, size) for the runs in the tensor.
template <typename Body>
void ForRuns(const common::v1::BucketPiece& piece, Body body) {
  const int64_t size = RunBytes(piece);
  for (int64_t i = 0; i < std::max<int64_t>(1, piece.repeat()); ++i) {
    body(piece.tensor_offset() + i * piece.stride(), size);
  }
}

}  // namespace

// Takes a span whose pieces have one run each.
class TensorSink::SpanTaker : public comm::MessageTaker {
 public:
  // `keeps`: the receive buffer must hold the bytes too, even if it is not their destination.
  SpanTaker(TensorSink& sink, int bucket, const BucketSpan& span, bool keeps)
      : sink_(sink),
        pieces_(sink.plan_.buckets[bucket].pieces()),
        span_(span),
        keeps_(keeps),
        at_(span.first) {}

  void Take(int64_t offset, const std::byte* from, std::byte* to, int64_t size,
            bool stays) override {
    const auto start = PhaseTimes::Clock::now();
    // Bytes deferred by earlier calls come first.
    int64_t here = offset + size - taken_;
    from -= offset - taken_;
    to -= offset - taken_;
    while (here > 0) {
      const Piece& piece = pieces_[at_];
      const int64_t within = taken_ - (piece.bucket_offset() - span_.bucket_offset);
      const int64_t portion = PortionOf(piece, within, here, stays);
      if (portion == 0) break;
      status_.Update(Put(piece.tensor(), piece.tensor_offset() + within, from, to, portion));
      if (within + portion == piece.size_bytes()) ++at_;
      from += portion;
      to += portion;
      here -= portion;
      taken_ += portion;
    }
    sink_.taken_time_ += PhaseTimes::Clock::now() - start;
  }

  bool has_taken() const { return taken_ == span_.size_bytes; }
  const BucketSpan& span() const { return span_; }
  const absl::Status& status() const { return status_; }

 private:
  // How much of a piece is put at once: as much as the cache keeps, and whole grains where there
  // are such. 0: less than a grain is here, and more will be.
  int64_t PortionOf(const Piece& piece, int64_t within, int64_t here, bool stays) const {
    const int64_t rest = piece.size_bytes() - within;
    const int64_t most = std::min({rest, here, kPortionBytes});
    if (most == rest || !sink_.memory_.packs()) return most;
    const UpdateMemory::Grain grain = sink_.memory_.GrainOf(piece.tensor());
    if (grain.size_bytes == 0) return most;
    const int64_t before = grain.before + piece.tensor_offset() + within;
    const int64_t first_end = grain.size_bytes - before % grain.size_bytes;
    if (first_end <= most) {
      return first_end + (most - first_end) / grain.size_bytes * grain.size_bytes;
    }
    const int64_t whole = std::min(first_end, rest);
    if (whole <= here) return whole;
    return stays ? 0 : most;
  }

  absl::Status Put(int tensor, int64_t first, const std::byte* from, std::byte* to, int64_t size) {
    const TensorEntry& entry = sink_.plan_.manifest.tensors(tensor);
    const int64_t held_bytes = sink_.plan_.tensor_bytes[tensor];
    const absl::Span<const std::byte> bytes(from, static_cast<size_t>(size));
    DigestSum& sum = sink_.sums_[tensor];
    if (sink_.IsPacked(tensor)) {
      if (from == to) return sink_.PackFrom(tensor, first, bytes);
      // `from` may be memory of a process that writes to it meanwhile. Digest and packing read one
      // copy, so that both see the same bytes.
      std::byte* const copy = keeps_ ? to : sink_.Scratch(size).data();
      CopyHeld(entry, held_bytes, first, bytes, copy, sum);
      sink_.memory_.WriteStaged(tensor, first, {copy, bytes.size()});
      return sink_.Arrived(tensor, first, size);
    }
    std::byte* const place = sink_.memory_.Staged(tensor).data() + first;
    if (from == place) {
      AddHeld(entry, held_bytes, first, bytes, sum);
    } else {
      // Past the caches, unless the bytes are read again at once, to be packed.
      const bool streams = sink_.memory_.packs() && sink_.memory_.GrainOf(tensor).size_bytes == 0;
      CopyHeld(entry, held_bytes, first, bytes, place, sum, streams);
      if (keeps_ && to != place && to != from) std::memcpy(to, place, bytes.size());
    }
    return sink_.Arrived(tensor, first, size);
  }

  TensorSink& sink_;
  const google::protobuf::RepeatedPtrField<Piece>& pieces_;
  const BucketSpan span_;
  const bool keeps_;
  int at_;             // the piece to which the next byte belongs
  int64_t taken_ = 0;  // bytes
  absl::Status status_;
};

TensorSink::TensorSink(const TransferPlan& plan, UpdateMemory& memory)
    : plan_(plan),
      memory_(memory),
      ops_(memory.ops()),
      missing_(plan.tensor_bytes),
      sums_(plan.tensor_bytes.size()) {}

TensorSink::~TensorSink() = default;

absl::StatusOr<std::unique_ptr<TensorSink>> TensorSink::Create(const TransferPlan& plan,
                                                               UpdateMemory& memory) {
  std::vector<bool> is_packed(plan.manifest.tensors_size());
  for (int i = 0; i < plan.manifest.tensors_size(); ++i) {
    const auto size = static_cast<int64_t>(memory.Staged(i).size());
    is_packed[i] = size == 0 && memory.packs();
    if (size != plan.tensor_bytes[i] && !is_packed[i]) {
      return absl::InternalError(absl::StrCat("tensor ", plan.manifest.tensors(i).name(),
                                              ": its memory has ", size, " bytes, expected ",
                                              plan.tensor_bytes[i]));
    }
  }
  auto sink = absl::WrapUnique(new TensorSink(plan, memory));
  sink->is_packed_ = std::move(is_packed);
  sink->digests_ =
      MakeTensorDigests(plan.manifest, std::vector<DigestSum>(plan.manifest.tensors_size()));
  return sink;
}

absl::Status TensorSink::Collect(int bucket, at::Tensor buffer) {
  auto* const bytes = static_cast<std::byte*>(buffer.data_ptr());
  std::vector<CopyRun> runs;
  for (const auto& piece : plan_.buckets[bucket].pieces()) {
    if (IsPacked(piece.tensor())) {
      std::byte* to = bytes + piece.bucket_offset();
      absl::Status status;
      ForRuns(piece, [&](int64_t offset, int64_t size) {
        status.Update(memory_.ReadLive(piece.tensor(), offset, {to, static_cast<size_t>(size)}));
        to += size;
      });
      RETURN_IF_ERROR(status);
      continue;
    }
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> from, BaseOf(piece.tensor()));
    runs.push_back(RunOf(piece, bytes + piece.bucket_offset(), RunBytes(piece),
                         from.data() + piece.tensor_offset(), piece.stride()));
  }
  return ops_.Copy(runs);
}

absl::StatusOr<absl::Span<const std::byte>> TensorSink::BaseOf(int tensor) const {
  const absl::Span<const std::byte> base = memory_.Live(tensor);
  if (static_cast<int64_t>(base.size()) == plan_.tensor_bytes[tensor]) return base;
  return absl::InternalError(absl::StrCat("tensor ", plan_.manifest.tensors(tensor).name(),
                                          ": its base has ", base.size(), " bytes, expected ",
                                          plan_.tensor_bytes[tensor]));
}

absl::Status TensorSink::TakeFromBase(int tensor) {
  const int64_t size = plan_.tensor_bytes[tensor];
  if (size == 0) return absl::OkStatus();
  if (IsPacked(tensor)) {
    // Portions that stay in the core's cache from reading to packing, and end between grains, which
    // are packed at once.
    const UpdateMemory::Grain grain = memory_.GrainOf(tensor);
    const int64_t multiple = std::max<int64_t>(1, grain.size_bytes);
    const int64_t portion = (kPortionBytes + multiple - 1) / multiple * multiple;
    for (int64_t offset = 0; offset < size;) {
      const int64_t until_end = portion - (grain.before + offset) % multiple;
      const absl::Span<std::byte> bytes = Scratch(std::min(until_end, size - offset));
      RETURN_IF_ERROR(memory_.ReadLive(tensor, offset, bytes));
      RETURN_IF_ERROR(PackFrom(tensor, offset, bytes));
      offset += static_cast<int64_t>(bytes.size());
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> from, BaseOf(tensor));
  Piece whole;
  whole.set_tensor(tensor);
  whole.set_size_bytes(size);
  RETURN_IF_ERROR(
      ops_.Copy({RunOf(whole, memory_.Staged(tensor).data(), size, from.data(), size)}));
  RETURN_IF_ERROR(AddToSums({&whole}));
  return Arrived(whole);
}

absl::Span<std::byte> TensorSink::Place(int bucket, const BucketSpan& span) {
  return StagedRange(memory_, plan_.buckets[bucket].pieces(), span.first, span.count);
}

absl::Status TensorSink::Unpack(int bucket, const BucketSpan& span, const at::Tensor& buffer) {
  for (const auto& taker : takers_[bucket]) {
    if (taker->span().first == span.first && taker->has_taken()) return absl::OkStatus();
  }
  const at::Tensor landed = buffer.device() == ops_.device() ? buffer : buffer.to(ops_.device());
  const auto* bytes = static_cast<const std::byte*>(landed.const_data_ptr());
  std::vector<CopyRun> runs;
  for (int i = span.first; i < span.first + span.count; ++i) {
    const auto& piece = plan_.buckets[bucket].pieces(i);
    if (IsPacked(piece.tensor())) {
      const std::byte* from = bytes + piece.bucket_offset();
      absl::Status status;
      ForRuns(piece, [&](int64_t offset, int64_t size) {
        status.Update(PackFrom(piece.tensor(), offset, {from, static_cast<size_t>(size)}));
        from += size;
      });
      RETURN_IF_ERROR(status);
      continue;
    }
    std::byte* const to = memory_.Staged(piece.tensor()).data();
    runs.push_back(RunOf(piece, to + piece.tensor_offset(), piece.stride(),
                         bytes + piece.bucket_offset(), RunBytes(piece)));
  }
  return ops_.Copy(runs);
}

comm::MessageTaker* TensorSink::Taker(int bucket, const BucketSpan& span, bool keeps) {
  if (!ops_.on_host()) return nullptr;
  for (int i = span.first; i < span.first + span.count; ++i) {
    if (plan_.buckets[bucket].pieces(i).repeat() > 1) return nullptr;
  }
  auto& takers = takers_[bucket];
  takers.push_back(std::make_unique<SpanTaker>(*this, bucket, span, keeps));
  return takers.back().get();
}

absl::Status TensorSink::Digest(int bucket) {
  const auto& all = plan_.buckets[bucket].pieces();
  std::vector<bool> is_taken(all.size(), false);
  for (const auto& taker : takers_[bucket]) {
    RETURN_IF_ERROR(taker->status());
    const BucketSpan& span = taker->span();
    std::fill_n(is_taken.begin() + span.first, span.count, taker->has_taken());
  }
  takers_.erase(bucket);
  std::vector<const Piece*> pieces;
  for (int i = 0; i < all.size(); ++i) {
    // Packed tensors were digested on their way.
    if (!is_taken[i] && !IsPacked(all[i].tensor())) pieces.push_back(&all[i]);
  }
  // On the host one by one: Arrived() then finds the bytes in the core's cache.
  const size_t at_once = ops_.on_host() ? 1 : pieces.size();
  for (size_t first = 0; first < pieces.size(); first += at_once) {
    RETURN_IF_ERROR(AddToSums(absl::MakeSpan(pieces).subspan(first, at_once)));
    for (size_t i = first; i < first + at_once; ++i) RETURN_IF_ERROR(Arrived(*pieces[i]));
  }
  return absl::OkStatus();
}

absl::Status TensorSink::PackFrom(int tensor, int64_t offset, absl::Span<const std::byte> bytes) {
  AddHeld(plan_.manifest.tensors(tensor), plan_.tensor_bytes[tensor], offset, bytes, sums_[tensor]);
  memory_.WriteStaged(tensor, offset, bytes);
  return Arrived(tensor, offset, static_cast<int64_t>(bytes.size()));
}

absl::Span<std::byte> TensorSink::Scratch(int64_t size) {
  if (static_cast<int64_t>(scratch_.size()) < size) scratch_.resize(static_cast<size_t>(size));
  return absl::MakeSpan(scratch_).first(static_cast<size_t>(size));
}

absl::Status TensorSink::AddToSums(absl::Span<const Piece* const> pieces) {
  runs_.clear();
  for (const Piece* const piece : pieces) {
    const int tensor = piece->tensor();
    DigestRun held = RunOfHeld(plan_.manifest.tensors(tensor), memory_.Staged(tensor));
    held.slot = tensor;
    ForRuns(*piece, [&](int64_t offset, int64_t size) { AppendPart(held, offset, size, runs_); });
  }
  // Synchronizes even if there is nothing to digest: the bucket's buffer is free when this returns.
  return runs_.empty() ? ops_.Synchronize() : ops_.Digest(runs_, absl::MakeSpan(sums_));
}

absl::Status TensorSink::Arrived(const Piece& piece) {
  absl::Status status;
  ForRuns(piece, [&](int64_t offset, int64_t size) {
    if (status.ok()) status = Arrived(piece.tensor(), offset, size);
  });
  return status;
}

absl::Status TensorSink::Arrived(int tensor, int64_t offset, int64_t size) {
  if (!IsPacked(tensor)) RETURN_IF_ERROR(memory_.Arrived(tensor, offset, size));
  missing_[tensor] -= size;
  if (missing_[tensor] == 0) {
    digests_[tensor] = MakeTensorDigest(plan_.manifest.tensors(tensor), sums_[tensor]);
  }
  return absl::OkStatus();
}

}  // namespace tandem::weights
