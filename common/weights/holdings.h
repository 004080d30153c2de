// Holdings: who holds what of a model, as pieces of its logical tensors, for every rank of one side
// of a weight update.
#ifndef TANDEM_COMMON_WEIGHTS_HOLDINGS_H_
#define TANDEM_COMMON_WEIGHTS_HOLDINGS_H_

#include <cstdint>
#include <vector>

#include "common/comm/mesh_shape.h"
#include "common/weights/model_layout.h"
#include "common/weights/piece.h"

namespace tandem::weights {

// Elements that follow one another in the piece follow one another in the rank's memory.
struct Holding {
  Piece piece;
  int32_t block = 0;   // the unit whose shard it is in (trainer), or the tensor (rollout)
  int64_t offset = 0;  // of the first element within that shard, or within the rank's box
};

struct Holdings {
  int num_tensors = 0;
  std::vector<int64_t> columns;             // of each tensor; empty where nobody knows
  std::vector<std::vector<Holding>> ranks;  // each by tensor, then by position in it

  int num_ranks() const { return static_cast<int>(ranks.size()); }
};

// The elements [first, first + count) of a box, counted row by row, as pieces of the logical
// tensor: at most three. Offsets are those within the box.
std::vector<Holding> PiecesOfBox(const LogicalTensor& tensor, const TensorBox& box, int64_t first,
                                 int64_t count);

// The trainer's ranks, in the mesh's order. As ShardedTransformer has it: a unit of n elements is
// padded at its end to dp_shard slices of ceil(n / dp_shard); the padding is held by nobody. Every
// replicate has the same. Of `layout` mesh.tp parts.
Holdings TrainerHoldings(const ModelLayout& layout, const comm::MeshShape& mesh);

// What rank `rank` of TrainerHoldings() answers for: of what several ranks hold alike, copies of
// dp_replicate and boxes of tensor-parallel ranks, the first has it. Over all ranks, each element
// once.
std::vector<Holding> CountedHoldings(const ModelLayout& layout, const comm::MeshShape& mesh,
                                     int rank);

// The ranks of one rollout replica, each with its box of every tensor.
Holdings RolloutHoldings(const ModelLayout& layout);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_HOLDINGS_H_
