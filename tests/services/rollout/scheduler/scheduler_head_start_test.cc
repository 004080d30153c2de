// Turns of episodes that go on, ahead of episodes that have not begun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/services/rollout/scheduler/scheduler_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::ElementsAre;

class HeadStartTest : public SchedulerTest {
 protected:
  Sequence* AddTurn(const Sequence& before) {
    Sequence* turn = Continue(before, 2);
    scheduler_->GiveHeadStart(turn);
    scheduler_->Add(turn);
    return turn;
  }
};

TEST_F(HeadStartTest, ATurnWhosePromptIsCachedGoesAheadOfEarlierPrompts) {
  Start(100, {.max_num_seqs = 1});
  Sequence* first = Add(8);
  Step();
  Sequence* cold = Add(8);
  Sequence* other = Make(8);
  scheduler_->GiveHeadStart(other);
  scheduler_->Add(other);
  scheduler_->Remove(first);
  Sequence* turn = AddTurn(*first);
  // All but what the first turn sampled, and the observation.
  EXPECT_THAT(Step(), ElementsAre(std::pair(turn, 3)));
  scheduler_->Remove(turn);
  EXPECT_THAT(Step(), ElementsAre(std::pair(cold, 8)));
  scheduler_->Remove(cold);
  EXPECT_THAT(Step(), ElementsAre(std::pair(other, 8)));
}

TEST_F(HeadStartTest, APromptOfWhichLessIsCachedWaitsItsTime) {
  Start(100, {.max_num_seqs = 1});
  Sequence* first = Add(8);
  Step();
  Sequence* cold = Add(8);
  scheduler_->Remove(first);
  Sequence* turn = Continue(*first, 20);
  scheduler_->GiveHeadStart(turn);
  scheduler_->Add(turn);
  EXPECT_THAT(Step(), ElementsAre(std::pair(cold, 8)));
}

// More episodes than the cache holds: each turn still finds its blocks.
TEST_F(HeadStartTest, EpisodesBeyondTheCacheFindTheirBlocks) {
  constexpr int kEpisodes = 40, kTurns = 3;
  Start(/*num_blocks=*/40, {.max_num_seqs = 2});
  std::vector<std::pair<Sequence*, int>> turns;  // and how many are left
  for (int i = 0; i < kEpisodes; ++i) turns.emplace_back(Add(8), kTurns - 1);
  int64_t computed = 0;
  while (!scheduler_->waiting().empty() || !scheduler_->running().empty()) {
    for (const auto& [sequence, num_tokens] : Step()) {
      computed += num_tokens;
      scheduler_->Remove(sequence);
      const auto at = std::find_if(turns.begin(), turns.end(),
                                   [&](const auto& turn) { return turn.first == sequence; });
      if (at->second > 0) *at = {AddTurn(*sequence), at->second - 1};
    }
  }
  // Prompts of 8 tokens, and of each later turn the sampled token and the observation.
  EXPECT_EQ(computed, kEpisodes * (8 + (kTurns - 1) * 3));
}

// A request waits for no more arrivals than that.
TEST_F(HeadStartTest, TurnsThatKeepComingDoNotHoldUpAPromptForEver) {
  Start(100, {.max_num_seqs = 1});
  Sequence* turn = Add(8);
  Step();
  const Sequence* cold = Add(8);
  for (int arrivals = 0; arrivals < 40; ++arrivals) {
    scheduler_->Remove(turn);
    turn = AddTurn(*turn);
    const auto step = Step();
    ASSERT_EQ(step.size(), 1u);
    if (step[0].first == cold) return;
  }
  FAIL() << "40 later turns went ahead";
}

}  // namespace
}  // namespace tandem::rollout
