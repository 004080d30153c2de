#include "common/weights/holdings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::weights {
namespace {

using ::testing::Each;

// Tensors that tensor-parallel ranks have whole and in parts, of sizes that nothing divides, so
// that what the ranks have alike is cut at other places on each.
ModelLayout UnevenLayout(int tp, int ep = 1) {
  model::ModelSpec spec;
  spec.hidden_size = 7;
  spec.vocab_size = 13;
  model::LayerSpec layer;
  layer.attention.num_heads = layer.attention.num_kv_heads = 5;
  layer.attention.head_dim = 3;
  layer.feed_forward.intermediate_size = 11;
  spec.layers.assign(2, layer);
  spec.layers.back().experts = {.num_experts = 3, .intermediate_size = 5, .routing = {.top_k = 2}};
  return *LayoutOf(spec, {.max_elements = 40}, tp, ep);
}

TEST(Holdings, EveryElementCountsOnceOverAllRanksOfAnyMesh) {
  for (const comm::MeshShape& mesh :
       {comm::MeshShape{}, comm::MeshShape{.dp_shard = 3},
        comm::MeshShape{.dp_replicate = 2, .dp_shard = 2},
        comm::MeshShape{.dp_replicate = 2, .dp_shard = 3, .tp = 3},
        comm::MeshShape{.dp_shard = 4, .tp = 2}, comm::MeshShape{.ep = 3},
        comm::MeshShape{.dp_replicate = 2, .dp_shard = 2, .ep = 3},
        comm::MeshShape{.dp_shard = 2, .tp = 2, .ep = 3}}) {
    const ModelLayout layout = UnevenLayout(mesh.tp, mesh.ep);
    std::vector<std::vector<int>> times;
    for (const LogicalTensor& tensor : layout.tensors) times.emplace_back(tensor.elements(), 0);

    for (int rank = 0; rank < mesh.size(); ++rank) {
      for (const Holding& holding : CountedHoldings(layout, mesh, rank)) {
        const Piece& piece = holding.piece;
        for (int64_t run = 0; run < piece.repeat; ++run) {
          for (int64_t i = 0; i < piece.length; ++i) {
            ++times[piece.tensor][piece.first + run * piece.stride + i];
          }
        }
      }
    }

    for (const std::vector<int>& tensor : times) {
      EXPECT_THAT(tensor, Each(1))
          << mesh.dp_replicate << "x" << mesh.dp_shard << "x" << mesh.ep << "x" << mesh.tp;
    }
  }
}

}  // namespace
}  // namespace tandem::weights
