// Pieces of a model's tensors in one rank's shards: cast to the wire type, and digested there.
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/digest.h"
#include "common/weights/holdings.h"
#include "common/weights/manifest.h"
#include "common/weights/piece.h"
#include "services/trainer/publish/shard_gather_source.h"

namespace tandem::trainer {

// INVALID_ARGUMENT, with the tensor, where the piece lies outside of the shards.
absl::Status CheckPiece(const weights::Manifest& manifest, const ShardedWeights& shards,
                        const weights::Piece& piece, const weights::Place& from);

// A piece, and where it lies in the shards.
struct ShardPiece {
  weights::Piece piece;
  weights::Place from;
};

// Casts the pieces into `to`, or copies them where they are there in its type, run after run: as
// many elements of the wire type, in memory of the shards' ops, where the work is queued. Errors:
// those of the ops.
absl::Status PackPieces(const ShardedWeights& shards, absl::Span<const ShardPiece> pieces,
                        const at::Tensor& to);

// What PackPieces() wrote of one piece, as a part of its tensor.
weights::DigestRun RunOfPacked(const weights::Piece& piece, int64_t element_bytes,
                               const std::byte* packed);

// By tensor of the manifest, the digest in wire type of `holdings`, which are the shards'. Casts a
// few MiB at a time. Errors: those of CheckPiece() and WireType().
absl::StatusOr<std::vector<weights::DigestSum>> DigestShards(
    const weights::Manifest& manifest, const ShardedWeights& shards,
    absl::Span<const weights::Holding> holdings);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_
