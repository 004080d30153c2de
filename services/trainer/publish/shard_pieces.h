// Pieces of a model's tensors in one rank's shards: casts them to the wire type and digests them.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/piece.h"
#include "common/weights/tensor_digests.h"
#include "services/trainer/publish/rank_shards.h"

namespace tandem::trainer {

// INVALID_ARGUMENT, naming the tensor, if the piece lies outside of the shards.
absl::Status CheckPiece(const weights::Manifest& manifest, const RankShards& shards,
                        const weights::Piece& piece, const weights::Place& from);

// A piece, and its place in the shards.
struct ShardPiece {
  weights::Piece piece;
  weights::Place from;
};

// Casts the pieces, or copies those already in wire type, one after another into `to`, which has
// exactly their number of elements in wire type. `to` is memory of the shards' ops, which queue the
// work. Errors: those of the ops.
absl::Status PackPieces(const RankShards& shards, absl::Span<const ShardPiece> pieces,
                        const at::Tensor& to);

// The digest run of one piece that PackPieces() wrote, as a part of its tensor.
weights::DigestRun RunOfPacked(const weights::Piece& piece, int64_t element_bytes,
                               const std::byte* packed);

// The same pieces with their places.
std::vector<ShardPiece> PiecesOf(absl::Span<const weights::Holding> holdings);

// By tensor of the manifest, the digest in wire type of these pieces of the rank's shards. Casts a
// few MiB at a time. Errors: those of CheckPiece() and WireType().
absl::StatusOr<std::vector<weights::DigestSum>> DigestShards(const weights::Manifest& manifest,
                                                             const RankShards& shards,
                                                             absl::Span<const ShardPiece> pieces);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_
