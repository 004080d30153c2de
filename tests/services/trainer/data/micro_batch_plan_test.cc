#include "services/trainer/data/micro_batch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> RandomLengths(int count, int64_t longest, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> out(count);
  for (int64_t& length : out) length = 1 + static_cast<int64_t>(random() % longest);
  return out;
}

int64_t Tokens(const std::vector<int64_t>& indices, const std::vector<int64_t>& lengths) {
  return std::accumulate(indices.begin(), indices.end(), int64_t{0},
                         [&](int64_t sum, int64_t i) { return sum + lengths[i]; });
}

TEST(MicroBatchPlan, HoldsEverySequenceOnceWithinTheTokenBudget) {
  for (int ranks : {1, 2, 3, 5}) {
    const std::vector<int64_t> lengths = RandomLengths(97, 60, ranks);

    const MicroBatchPlan plan = PlanMicroBatches(lengths, ranks, 128);

    std::vector<int> seen(lengths.size(), 0);
    for (const auto& rank : plan) {
      for (const auto& micro_batch : rank) {
        EXPECT_LE(Tokens(micro_batch, lengths), 128);
        for (int64_t i : micro_batch) ++seen[i];
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

TEST(MicroBatchPlan, GivesEveryRankTheSameNumberOfMicroBatches) {
  const std::vector<int64_t> lengths = {100, 3, 3,
                                        3};  // the budget fits one rank's in one, the rest too

  const MicroBatchPlan plan = PlanMicroBatches(lengths, 3, 4);

  ASSERT_EQ(plan.size(), 3u);
  EXPECT_EQ(plan[0].size(), plan[1].size());
  EXPECT_EQ(plan[1].size(), plan[2].size());
}

TEST(MicroBatchPlan, LetsALongSequenceBeAMicroBatchOfItsOwn) {
  const MicroBatchPlan plan = PlanMicroBatches(std::vector<int64_t>{2, 50, 2}, 1, 4);
  EXPECT_THAT(plan[0], ::testing::UnorderedElementsAre(ElementsAre(1), ElementsAre(0, 2)));
}

TEST(MicroBatchPlan, BalancesTokensOverTheRanks) {
  const std::vector<int64_t> lengths = RandomLengths(64, 200, 5);

  const MicroBatchPlan plan = PlanMicroBatches(lengths, 4, 512);

  std::vector<int64_t> tokens;
  for (const auto& rank : plan) {
    int64_t sum = 0;
    for (const auto& micro_batch : rank) sum += Tokens(micro_batch, lengths);
    tokens.push_back(sum);
  }
  const auto [least, most] = std::minmax_element(tokens.begin(), tokens.end());
  EXPECT_LE(*most - *least, 20) << "of " << *most;
}

TEST(MicroBatchPlan, FillsUpWithEmptyMicroBatchesWhereSequencesAreFew) {
  const MicroBatchPlan plan = PlanMicroBatches(std::vector<int64_t>{7}, 3, 16);
  EXPECT_THAT(plan[0], ElementsAre(ElementsAre(0)));
  EXPECT_THAT(plan[1], ElementsAre(IsEmpty()));
  EXPECT_THAT(plan[2], ElementsAre(IsEmpty()));
}

TEST(MicroBatchPlan, LeavesOutSequencesThatNothingIsPredictedIn) {
  const MicroBatchPlan plan = PlanMicroBatches(std::vector<int64_t>{0, 5, 0}, 1, 16);
  EXPECT_THAT(plan[0], ElementsAre(ElementsAre(1)));
}

TEST(MicroBatchPlan, IsTheSameForTheSameLengths) {
  const std::vector<int64_t> lengths = RandomLengths(50, 9, 1);  // many of equal length
  EXPECT_EQ(PlanMicroBatches(lengths, 3, 32), PlanMicroBatches(lengths, 3, 32));
}

TEST(PlanMicroBatches, KeepsNeighboursOfAGroupTogetherWhereTheBalanceAllows) {
  const std::vector<int64_t> lengths(16, 4);
  std::vector<int64_t> groups(16);
  for (int64_t i = 0; i < 16; ++i) groups[i] = i / 2;

  const MicroBatchPlan plan = PlanMicroBatches(lengths, 2, 1024, groups);

  for (const auto& rank : plan) {
    ASSERT_EQ(rank.size(), 1u);
    ASSERT_EQ(rank[0].size(), 8u);
    for (size_t i = 0; i < 8; i += 2) EXPECT_EQ(groups[rank[0][i]], groups[rank[0][i + 1]]);
  }
}

TEST(PlanMicroBatches, SplitsAGroupThatIsMostOfTheBatch) {
  const std::vector<int64_t> lengths(8, 4);

  const MicroBatchPlan plan = PlanMicroBatches(lengths, 2, 1024, std::vector<int64_t>(8, 0));

  EXPECT_EQ(plan[0][0].size(), 4u);
  EXPECT_EQ(plan[1][0].size(), 4u);
}

}  // namespace
}  // namespace tandem::trainer
