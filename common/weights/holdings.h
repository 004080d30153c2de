// Holdings: which pieces of a model's logical tensors each rank on one side of a weight update
// holds.
#ifndef TANDEM_COMMON_WEIGHTS_HOLDINGS_H_
#define TANDEM_COMMON_WEIGHTS_HOLDINGS_H_

#include <cstdint>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/weights/model_layout.h"
#include "common/weights/piece.h"

namespace tandem::weights {

// A held piece. Elements adjacent in the piece are adjacent in the rank's memory.
struct Holding {
  Piece piece;
  int32_t block = 0;   // unit of the shard (trainer), or tensor (rollout)
  int64_t offset = 0;  // of the first element within that shard, or within the rank's box
};

struct Holdings {
  int num_tensors = 0;
  std::vector<int64_t> columns;             // of each tensor; empty if unknown
  std::vector<std::vector<Holding>> ranks;  // sorted by tensor, then position

  int num_ranks() const { return static_cast<int>(ranks.size()); }
};

// Returns the elements [first, first + count) of a box, counted row by row, as at most three pieces
// of the logical tensor. Offsets are relative to the box.
std::vector<Holding> PiecesOfBox(const LogicalTensor& tensor, const TensorBox& box, int64_t first,
                                 int64_t count);

// Returns the trainer ranks' holdings, in mesh order. Follows ShardedTransformer: a unit of n
// elements is padded at its end to equal slices, one for each rank that shares it: those of dp_shard
// for experts, of dp_shard x ep for the rest; nobody holds the padding. All replicates hold the same.
// `layout` must have mesh.ep * mesh.tp parts.
Holdings TrainerHoldings(const ModelLayout& layout, const comm::MeshShape& mesh);

// Returns the part of rank `rank`'s TrainerHoldings() that it counts for: of several ranks with the
// same data (dp_replicate copies, boxes of tensor-parallel ranks), only the first counts. Over all
// ranks, each element counts once.
std::vector<Holding> CountedHoldings(const ModelLayout& layout, const comm::MeshShape& mesh,
                                     int rank);

// Returns the ranks of one rollout replica, each with its box of every tensor.
Holdings RolloutHoldings(const ModelLayout& layout);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_HOLDINGS_H_
