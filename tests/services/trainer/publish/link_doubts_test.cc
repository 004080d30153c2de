#include "services/trainer/publish/link_doubts.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::trainer {
namespace {

// Updates until the replica is in the chain again.
int UpdatesApart(LinkDoubts& doubts, const std::string& id) {
  int updates = 0;
  while (doubts.BeginUpdate(), doubts.UpdatesLeft(id) > 0) ++updates;
  return updates;
}

TEST(LinkDoubts, ALinkThatBreaksAgainAndAgainIsTriedEverLessOften) {
  LinkDoubts doubts;
  EXPECT_EQ(doubts.UpdatesLeft("b"), 0);
  std::vector<int> pauses;
  for (int i = 0; i < 9; ++i) {
    doubts.OnBroken("b", "a");
    EXPECT_GT(doubts.UpdatesLeft("b"), 0);
    pauses.push_back(UpdatesApart(doubts, "b"));
  }
  EXPECT_EQ(pauses, (std::vector<int>{1, 2, 4, 8, 16, 32, 64, 64, 64}));
  EXPECT_EQ(doubts.UpdatesLeft("a"), 0);
}

TEST(LinkDoubts, WhoCouldNotFeedIsLastAsLongAsTheOtherIsApart) {
  LinkDoubts doubts;
  doubts.OnBroken("b", "a");
  EXPECT_TRUE(doubts.IsLast("a"));
  EXPECT_FALSE(doubts.IsLast("b"));
  doubts.BeginUpdate();
  EXPECT_TRUE(doubts.IsLast("a"));
  doubts.BeginUpdate();
  EXPECT_FALSE(doubts.IsLast("a"));
}

TEST(LinkDoubts, OneThatFlapsGetsItsCreditBackStepByStep) {
  LinkDoubts doubts;
  for (int i = 0; i < 3; ++i) {
    doubts.OnBroken("b", "");
    UpdatesApart(doubts, "b");
  }
  doubts.OnCarried("b");  // 4 -> 2
  doubts.OnBroken("b", "");
  EXPECT_EQ(UpdatesApart(doubts, "b"), 4);
  for (int i = 0; i < 3; ++i) doubts.OnCarried("b");
  doubts.OnBroken("b", "");
  EXPECT_EQ(UpdatesApart(doubts, "b"), 1);
}

TEST(LinkDoubts, AnotherProcessBeginsWithoutDoubts) {
  LinkDoubts doubts;
  doubts.OnBroken("b", "");
  doubts.Forget("b");
  EXPECT_EQ(doubts.UpdatesLeft("b"), 0);
}

}  // namespace
}  // namespace tandem::trainer
