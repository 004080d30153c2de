#include "services/trainer/publish/shard_pieces.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/publish/wire_type.h"

namespace tandem::trainer {
namespace {

// What is cast and digested at a time: small enough to be digested out of a core's cache.
constexpr int64_t kPortionBytes = int64_t{1} << 20;

}  // namespace

absl::Status CheckPiece(const weights::Manifest& manifest, const ShardedWeights& shards,
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

void PackPiece(const ShardedWeights& shards, const weights::Piece& piece,
               const weights::Place& from, const at::Tensor& to) {
  at::NoGradGuard no_grad;
  const at::Tensor& master = shards.units[from.block].master;
  const at::Tensor runs = master.detach().view({-1}).as_strided(
      {piece.repeat, piece.length}, {from.stride, 1}, master.storage_offset() + from.offset);
  to.view({piece.repeat, piece.length}).copy_(runs);
}

void DigestPiece(const weights::Piece& piece, int64_t element_bytes,
                 absl::Span<const std::byte> packed, weights::DigestSum& sum) {
  weights::AddStrided(piece.first * element_bytes, piece.stride * element_bytes,
                      piece.length * element_bytes, packed, sum);
}

absl::StatusOr<std::vector<weights::DigestSum>> DigestShards(
    const weights::Manifest& manifest, const ShardedWeights& shards,
    absl::Span<const weights::Holding> holdings) {
  ASSIGN_OR_RETURN(const at::ScalarType type, WireType(manifest));
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  const int64_t portion = kPortionBytes / element_bytes;
  const at::Tensor buffer = at::empty({portion}, type);
  std::vector<weights::DigestSum> sums(manifest.tensors_size());
  for (const weights::Holding& holding : holdings) {
    const weights::Place place{holding.block, holding.offset, holding.piece.length};
    RETURN_IF_ERROR(CheckPiece(manifest, shards, holding.piece, place));
    weights::PieceCutter cutter(holding.piece, place, place);
    while (cutter.left() > 0) {
      weights::Piece piece;
      weights::Place from, unused;
      cutter.Take(portion, piece, from, unused);
      const at::Tensor packed = buffer.narrow(0, 0, piece.elements());
      PackPiece(shards, piece, from, packed);
      DigestPiece(piece, element_bytes,
                  {static_cast<const std::byte*>(packed.const_data_ptr()), packed.nbytes()},
                  sums[piece.tensor]);
    }
    Rest(shards.units[holding.block].master);
  }
  return sums;
}

}  // namespace tandem::trainer
