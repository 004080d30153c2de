#include "common/weights/relay_sender.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"
#include "common/weights/staged_range.h"

namespace tandem::weights {
namespace {

using Clock = PhaseTimes::Clock;

}  // namespace

RelaySender::RelaySender(const RelayedBuckets& relayed, int64_t element_bytes,
                         comm::ProcessGroup& group, UpdateMemory& memory, bool delta)
    : relayed_(relayed), group_(group), memory_(memory), ops_(memory.ops()), delta_(delta) {
  for (const RelayedBucket& bucket : relayed_) {
    largest_bytes_ = std::max(largest_bytes_, SizeBytes(bucket));
  }
  if (delta_) encoder_.emplace(ops_, element_bytes, largest_bytes_);
  slots_.resize(delta_ ? 2 : MessagesUnderWay(largest_bytes_));
}

std::string RelaySender::Name() const {
  return absl::StrCat("relayed bucket ", next_, " of ", relayed_.size(), " to rank ",
                      relayed_[next_].to());
}

at::Tensor RelaySender::InPlace(const RelayedBucket& relayed, int first, int count) const {
  const absl::Span<std::byte> bytes = StagedRange(memory_, relayed.pieces(), first, count);
  if (bytes.empty()) return {};
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())},
                       at::TensorOptions(at::kByte).device(ops_.device()));
}

absl::Status RelaySender::Unpack(const common::v1::BucketPiece& piece, Of of, std::byte* to) const {
  const int64_t runs = std::max<int64_t>(1, piece.repeat());
  const auto size = static_cast<size_t>(piece.size_bytes() / runs);
  for (int64_t i = 0; i < runs; ++i, to += size) {
    const int64_t offset = piece.tensor_offset() + i * piece.stride();
    if (of == Of::kStaged) {
      memory_.ReadStaged(piece.tensor(), offset, {to, size});
    } else {
      RETURN_IF_ERROR(memory_.ReadLive(piece.tensor(), offset, {to, size}));
    }
  }
  return absl::OkStatus();
}

absl::Status RelaySender::Pack(const RelayedBucket& relayed, int first, int count, Of of,
                               at::Tensor to) const {
  auto* const bytes = static_cast<std::byte*>(to.data_ptr());
  std::vector<CopyRun> runs;
  for (int i = first; i < first + count; ++i) {
    const auto& piece = relayed.pieces(i);
    const absl::Span<const std::byte> from =
        of == Of::kStaged ? memory_.Staged(piece.tensor()) : memory_.Live(piece.tensor());
    if (from.empty() && memory_.packs()) {
      RETURN_IF_ERROR(Unpack(piece, of, bytes + piece.bucket_offset()));
      continue;
    }
    if (static_cast<int64_t>(from.size()) < piece.tensor_offset() + piece.size_bytes()) {
      return absl::InternalError(absl::StrCat("tensor ", piece.tensor(), " has ", from.size(),
                                              " bytes in memory, fewer than it must relay"));
    }
    CopyRun& run = runs.emplace_back();
    run.repeat = std::max<int64_t>(1, piece.repeat());
    run.size = piece.size_bytes() / run.repeat;
    run.from = from.data() + piece.tensor_offset();
    run.from_stride = piece.stride();
    run.to = bytes + piece.bucket_offset();
    run.to_stride = run.size;
  }
  return ops_.Copy(runs);
}

absl::Status RelaySender::Send(const at::Tensor& bytes, const RelayedBucket& relayed, Slot& slot) {
  ASSIGN_OR_RETURN(auto work, group_.Send(bytes, relayed.to(), Name()));
  slot.works.push_back(std::move(work));
  return absl::OkStatus();
}

absl::Status RelaySender::SendWhole(const RelayedBucket& relayed, Slot& slot) {
  std::vector<at::Tensor> leaving;
  int first = 0;
  bool packs = false;
  for (const int count : relayed.message_pieces()) {
    at::Tensor bytes = InPlace(relayed, first, count);
    if (!bytes.defined()) {
      RETURN_IF_ERROR(Provide(ops_, largest_bytes_, slot.packed));
      RETURN_IF_ERROR(Pack(relayed, first, count, Of::kStaged, slot.packed));
      packs = true;
      const auto& last = relayed.pieces(first + count - 1);
      const int64_t begin = relayed.pieces(first).bucket_offset();
      bytes = slot.packed.narrow(0, begin, last.bucket_offset() + last.size_bytes() - begin);
    }
    leaving.push_back(std::move(bytes));
    first += count;
  }
  // Packed bytes may leave only when packing is done; one wait serves all messages of the bucket.
  if (packs) RETURN_IF_ERROR(ops_.Synchronize());
  for (const at::Tensor& bytes : leaving) RETURN_IF_ERROR(Send(bytes, relayed, slot));
  return absl::OkStatus();
}

absl::Status RelaySender::SendDelta(const RelayedBucket& relayed, Slot& slot) {
  const int64_t bytes = SizeBytes(relayed);
  RETURN_IF_ERROR(Provide(ops_, largest_bytes_, slot.packed));
  RETURN_IF_ERROR(Provide(ops_, largest_bytes_, base_packed_));
  RETURN_IF_ERROR(Pack(relayed, 0, relayed.pieces_size(), Of::kStaged, slot.packed));
  RETURN_IF_ERROR(Pack(relayed, 0, relayed.pieces_size(), Of::kBase, base_packed_));
  ASSIGN_OR_RETURN(const DeltaStats stats,
                   encoder_->Encode(base_packed_.narrow(0, 0, bytes),
                                    slot.packed.narrow(0, 0, bytes), slot.delta));
  // The size goes first: the peer posts a receive of exactly so many bytes.
  RETURN_IF_ERROR(Send(slot.delta.size, relayed, slot));
  return Send(slot.delta.coded.narrow(0, 0, stats.coded_bytes), relayed, slot);
}

absl::Status RelaySender::PassOne(const RelayedBucket& relayed, Slot& slot) {
  if (relayed.to() < 0 || relayed.to() >= group_.size() || relayed.to() == group_.rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected another rank of ", group_.size(), ", this is rank ", group_.rank()));
  }
  // The slot's earlier messages read its buffers until they are sent.
  RETURN_IF_ERROR(comm::FinishAll(&group_, slot.works));
  return delta_ ? SendDelta(relayed, slot) : SendWhole(relayed, slot);
}

absl::Status RelaySender::Pass(int bucket, PhaseTimes& times) {
  const Clock::time_point start = Clock::now();
  for (; next_ < relayed_.size() && relayed_[next_].after_bucket() <= bucket; ++next_) {
    RETURN_IF_ERROR(PassOne(relayed_[next_], slots_[next_ % slots_.size()]))
        << "phase forward, " << Name();
  }
  times.Worked("forward", start);
  return absl::OkStatus();
}

absl::Status RelaySender::Finish(PhaseTimes& times) {
  const Clock::time_point start = Clock::now();
  for (Slot& slot : slots_) {
    RETURN_IF_ERROR(comm::FinishAll(&group_, slot.works))
        << "phase forward, the last relayed buckets";
  }
  times.Worked("forward", start);
  return absl::OkStatus();
}

}  // namespace tandem::weights
