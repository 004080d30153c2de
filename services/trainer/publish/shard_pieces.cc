#include "services/trainer/publish/shard_pieces.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/publish/wire_type.h"

namespace tandem::trainer {
namespace {

// Bytes cast and digested at a time: few enough to digest them from a core's cache.
constexpr int64_t kPortionBytes = int64_t{1} << 20;
// A device takes more at a time, because each portion has to be waited for.
constexpr int64_t kDevicePortionBytes = int64_t{256} << 20;

}  // namespace

UnitShard InWireElements(UnitShard shard, at::ScalarType wire_type) {
  const int64_t elements = static_cast<int64_t>(sizeof(float) / c10::elementSize(wire_type));
  shard.computed = shard.master = shard.computed.view(wire_type);
  shard.numel *= elements;
  shard.padded_numel *= elements;
  shard.offset *= elements;
  shard.digests = nullptr;  // which count its own elements
  return shard;
}

absl::Status CheckPiece(const weights::Manifest& manifest, const RankShards& shards,
                        const weights::Piece& piece, const weights::Place& from) {
  const int64_t reach = from.offset + (piece.repeat - 1) * from.stride + piece.length;
  if (from.block >= 0 && from.block < static_cast<int64_t>(shards.units.size()) &&
      from.offset >= 0 && reach <= shards.units[from.block].master.numel()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", manifest.tensors(piece.tensor).name(), ": elements up to ", reach,
                   " of unit ", from.block, " are no part of rank ", shards.rank, "'s shard"));
}

absl::Status PackPieces(const RankShards& shards, absl::Span<const ShardPiece> pieces,
                        const at::Tensor& to) {
  at::NoGradGuard no_grad;
  auto* out = static_cast<std::byte*>(to.data_ptr());
  std::vector<weights::CastRun> runs;
  std::vector<weights::CopyRun> copies;
  const auto element = static_cast<int64_t>(to.element_size());
  int64_t done = 0;
  for (const auto& [piece, from] : pieces) {
    const at::Tensor& master = shards.units[from.block].master;
    const at::Tensor& computed = shards.units[from.block].computed;
    const bool is_cast = computed.defined() && computed.scalar_type() == to.scalar_type();
    if (is_cast && computed.device() == shards.ops->device()) {
      weights::CopyRun& run = copies.emplace_back();
      run.from = static_cast<const std::byte*>(computed.const_data_ptr()) + from.offset * element;
      run.to = out + done * element;
      run.size = piece.length * element;
      run.repeat = piece.repeat;
      run.from_stride = from.stride * element;
      run.to_stride = run.size;
    } else if (master.device() == shards.ops->device()) {
      weights::CastRun& run = runs.emplace_back();
      run.from = master.const_data_ptr<float>() + from.offset;
      run.to = out + done * element;
      run.length = piece.length;
      run.repeat = piece.repeat;
      run.from_stride = from.stride;
    } else {
      // State in other memory. What is cast already has half the bytes to copy.
      const at::Tensor& source = is_cast ? computed : master;
      const at::Tensor held = source.detach().view({-1}).as_strided(
          {piece.repeat, piece.length}, {from.stride, 1}, source.storage_offset() + from.offset);
      to.view({-1})
          .narrow(0, done, piece.elements())
          .view({piece.repeat, piece.length})
          .copy_(held);
    }
    done += piece.elements();
  }
  RETURN_IF_ERROR(copies.empty() ? absl::OkStatus() : shards.ops->Copy(copies));
  return runs.empty() ? absl::OkStatus() : shards.ops->Cast(WireElementOf(to.scalar_type()), runs);
}

weights::DigestRun RunOfPacked(const weights::Piece& piece, int64_t element_bytes,
                               const std::byte* packed) {
  weights::DigestRun run;
  run.bytes = packed;
  run.offset = piece.first * element_bytes;
  run.stride = piece.stride * element_bytes;
  run.row_bytes = piece.length * element_bytes;
  run.rows = piece.repeat;
  run.slot = piece.tensor;
  return run;
}

std::vector<ShardPiece> PiecesOf(absl::Span<const weights::Holding> holdings) {
  std::vector<ShardPiece> pieces;
  for (const weights::Holding& holding : holdings) {
    pieces.push_back({holding.piece, {holding.block, holding.offset, holding.piece.length}});
  }
  return pieces;
}

absl::StatusOr<std::vector<weights::DigestSum>> DigestShards(const weights::Manifest& manifest,
                                                             const RankShards& shards,
                                                             absl::Span<const ShardPiece> pieces) {
  ASSIGN_OR_RETURN(const at::ScalarType type, WireType(manifest));
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  int64_t largest = 0;
  for (const ShardPiece& held : pieces) largest = std::max(largest, held.piece.elements());
  const int64_t portion = std::min(
      largest, (shards.ops->on_host() ? kPortionBytes : kDevicePortionBytes) / element_bytes);
  const auto entered = shards.ops->Enter();
  ASSIGN_OR_RETURN(const at::Tensor bytes, shards.ops->Buffer(portion * element_bytes));
  const at::Tensor buffer = bytes.view(type);
  std::vector<weights::DigestSum> sums(manifest.tensors_size());
  for (const ShardPiece& held : pieces) {
    RETURN_IF_ERROR(CheckPiece(manifest, shards, held.piece, held.from));
    weights::PieceCutter cutter(held.piece, held.from, held.from);
    while (cutter.left() > 0) {
      ShardPiece cut;
      weights::Place unused;
      cutter.Take(portion, cut.piece, cut.from, unused);
      const at::Tensor packed = buffer.narrow(0, 0, cut.piece.elements());
      RETURN_IF_ERROR(PackPieces(shards, {cut}, packed));
      const auto* const at = static_cast<const std::byte*>(packed.const_data_ptr());
      RETURN_IF_ERROR(
          shards.ops->Digest({RunOfPacked(cut.piece, element_bytes, at)}, absl::MakeSpan(sums)));
    }
    Evict(shards.units[held.from.block].master);
  }
  return sums;
}

}  // namespace tandem::trainer
