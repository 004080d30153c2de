#include "common/weights/holdings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tandem::weights {
namespace {

using ::testing::Each;

// Tensors that tensor-parallel ranks have whole and in parts, of sizes that nothing divides, so
// that what the ranks have alike is cut at other places on each.
ModelLayout UnevenLayout(int tp) {
  using Split = TensorRule::Split;
  return *LayoutOf(
      std::vector<TensorRule>{
          {.name = "embedding", .rows = 13, .columns = 5},
          {.name = "norm", .rows = 7, .split = Split::kWhole},
          {.name = "up", .rows = 15, .columns = 4, .split = Split::kRows, .groups = 5},
          {.name = "down", .rows = 3, .columns = 10, .split = Split::kColumns, .groups = 5},
          {.name = "last", .rows = 11, .unit = 1}},
      tp);
}

TEST(Holdings, EveryElementCountsOnceOverAllRanksOfAnyMesh) {
  for (const comm::MeshShape& mesh : {comm::MeshShape{}, comm::MeshShape{.dp_shard = 3},
                                      comm::MeshShape{.dp_replicate = 2, .dp_shard = 2},
                                      comm::MeshShape{.dp_replicate = 2, .dp_shard = 3, .tp = 3},
                                      comm::MeshShape{.dp_shard = 4, .tp = 2}}) {
    const ModelLayout layout = UnevenLayout(mesh.tp);
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
      EXPECT_THAT(tensor, Each(1)) << mesh.dp_replicate << "x" << mesh.dp_shard << "x" << mesh.tp;
    }
  }
}

}  // namespace
}  // namespace tandem::weights
