#include "common/sharding/matrix_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/sharding/shard_extent.h"

namespace tandem::sharding {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// A norm of 5 elements, then matrices between biases.
const std::vector<model::HiddenMatrix> kMatrices = {{5, 4, 6}, {29, 8, 3}, {60, 10, 10}};
constexpr int64_t kNumel = 163;

TEST(MatrixExchange, TakesEveryElementOfAMatrixFromItsShardOnce) {
  for (const int ranks : {1, 2, 3, 7}) {
    const int64_t owned = ExtentOf(kNumel, ranks).owned;
    std::vector<double> loads(ranks, 0.0);

    const MatrixExchange exchange = PlanMatrixExchange(kMatrices, owned, ranks, loads);

    std::vector<int> taken(kNumel, 0);
    std::vector<std::vector<int>> slots(ranks * ranks, std::vector<int>(exchange.slice, 0));
    for (const MatrixExchange::Piece& piece : exchange.pieces) {
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t element = kMatrices[piece.matrix].offset + piece.in_matrix + i;
        EXPECT_EQ(element, piece.sender * owned + piece.in_shard + i);
        ++taken[element];
        ++slots[piece.sender * ranks + exchange.owners[piece.matrix]].at(piece.in_slice + i);
      }
    }
    for (int64_t i = 0; i < kNumel; ++i) {
      const bool in_matrix = (i >= 5 && i < 53) || (i >= 60 && i < 160);
      EXPECT_EQ(taken[i], in_matrix ? 1 : 0) << "element " << i << " of " << ranks << " ranks";
    }
    for (const std::vector<int>& slice : slots) EXPECT_THAT(slice, Each(::testing::Le(1)));
  }
}

TEST(MatrixExchange, GivesTheLargestFirstToTheRankWithTheLeastWork) {
  std::vector<double> loads(2, 0.0);
  const int64_t owned = ExtentOf(kNumel, 2).owned;

  EXPECT_THAT(PlanMatrixExchange(kMatrices, owned, 2, loads).owners, ElementsAre(1, 1, 0));
  EXPECT_THAT(loads, ElementsAre(1000.0, 4 * 6 * 4 + 8 * 3 * 3));
  // The next unit's largest goes to the rank that has done less.
  EXPECT_THAT(PlanMatrixExchange(kMatrices, owned, 2, loads).owners, ElementsAre(0, 0, 1));
}

TEST(MatrixExchange, OfAUnitWithoutMatricesIsEmpty) {
  std::vector<double> loads(3, 0.0);

  const MatrixExchange exchange = PlanMatrixExchange({}, 10, 3, loads);

  EXPECT_EQ(exchange.slice, 0);
  EXPECT_TRUE(exchange.pieces.empty());
}

}  // namespace
}  // namespace tandem::sharding
