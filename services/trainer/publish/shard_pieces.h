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

// Casts the piece into `to`, piece.elements() elements of the wire type, run after run.
void PackPiece(const ShardedWeights& shards, const weights::Piece& piece,
               const weights::Place& from, const at::Tensor& to);

// Adds to its tensor's digest what PackPiece() wrote.
void DigestPiece(const weights::Piece& piece, int64_t element_bytes,
                 absl::Span<const std::byte> packed, weights::DigestSum& sum);

// By tensor of the manifest, the digest in wire type of `holdings`, which are the shards'. Casts a
// few MiB at a time. Errors: those of CheckPiece() and WireType().
absl::StatusOr<std::vector<weights::DigestSum>> DigestShards(
    const weights::Manifest& manifest, const ShardedWeights& shards,
    absl::Span<const weights::Holding> holdings);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_SHARD_PIECES_H_
