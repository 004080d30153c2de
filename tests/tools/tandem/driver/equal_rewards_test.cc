#include "tools/tandem/driver/equal_rewards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::driver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One group per list, with these rewards.
std::vector<Group> Groups(const std::vector<std::vector<double>>& rewards) {
  std::vector<Group> groups;
  for (const std::vector<double>& of_group : rewards) {
    Group& group = groups.emplace_back();
    group.prompt.answer = "42";
    for (const double reward : of_group) {
      Completion& completion = group.completions.emplace_back();
      completion.reward = reward;
      completion.text = "forty-two";
    }
  }
  return groups;
}

class EqualRewardsTest : public ::testing::Test {
 protected:
  static config::v1::RunConfig Config() {
    config::v1::RunConfig config;
    config.mutable_reward()->set_name("exact_match");
    return config;
  }

  // Runs `count` steps; returns the last one's metric.
  double Run(int64_t count, const std::vector<std::vector<double>>& rewards) {
    Metrics metrics;
    for (int64_t i = 0; i < count; ++i) equal_rewards_.OnStep(++step_, Groups(rewards), metrics);
    return metrics["rollout/equal_reward_groups"];
  }

  std::vector<std::string> notes_;
  EqualRewards equal_rewards_{Config(),
                              [this](const std::string& line) { notes_.push_back(line); }};
  int64_t step_ = 0;
};

TEST_F(EqualRewardsTest, OfManyStepsAreNamedWithAnExample) {
  EXPECT_EQ(Run(4, {{0, 0}, {0, 0}}), 2);
  EXPECT_TRUE(notes_.empty());
  Run(1, {{0, 0}, {0, 0}});

  ASSERT_EQ(notes_.size(), 1);
  EXPECT_THAT(notes_[0],
              AllOf(HasSubstr("steps 1 to 5: every reward is 0"), HasSubstr("(reward exact_match)"),
                    HasSubstr("\"42\""), HasSubstr("\"forty-two\"")));
  Run(4, {{0, 0}, {0, 0}});
  EXPECT_EQ(notes_.size(), 1);
  Run(1, {{0, 0}, {0, 0}});
  EXPECT_EQ(notes_.size(), 2);  // after 10
}

TEST_F(EqualRewardsTest, WithinGroupsAreNoSignalEither) {
  EXPECT_EQ(Run(5, {{0, 0}, {1, 1}}), 2);

  ASSERT_EQ(notes_.size(), 1);
  EXPECT_THAT(notes_[0], HasSubstr("the rewards of each prompt's completions are equal"));
}

TEST_F(EqualRewardsTest, AreCountedAnewAfterAStepWithASignal) {
  Run(4, {{0, 0}, {1, 1}});
  EXPECT_EQ(Run(1, {{0, 0}, {0, 1}}), 1);
  Run(4, {{0, 0}, {1, 1}});

  EXPECT_TRUE(notes_.empty());
}

TEST_F(EqualRewardsTest, OfSingleSamplesAreComparedOverTheStep) {
  EXPECT_EQ(Run(5, {{0}, {1}}), 0);
  EXPECT_TRUE(notes_.empty());

  Run(5, {{1}, {1}});
  EXPECT_EQ(notes_.size(), 1);
}

}  // namespace
}  // namespace tandem::driver
