#include "tools/tandem/driver/sample_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::driver {
namespace {

using ::testing::ElementsAre;

TEST(SampleBuilder, KeepsGroupsTogetherAndCarriesProcessedLogProbs) {
  std::vector<Group> groups(2);
  for (Group& group : groups) {
    group.prompt.token_ids = {7};
    group.completions.resize(2);
    for (Completion& completion : group.completions) {
      completion.token_ids = {3, 0};
      completion.logprobs = {-9.0f, -9.0f};
      completion.processed_logprobs = {-1.0f, -2.0f};
      completion.teacher_logprobs = {-3.0f, -4.0f};
      completion.teacher_top_ids = {3, 1, 0, 2};
      completion.teacher_top_logprobs = {-0.5f, -1.0f, -0.25f, -2.0f};
      completion.token_rewards = {0.5, 0.25};
      completion.part_scores = {{"length", -3}, {"match", 1}};
      completion.part_weights = {{"length", 0.5}, {"match", 2}};
      completion.finish_reason = common::v1::FINISH_REASON_STOP;
    }
  }

  const std::vector<common::v1::Sample> samples = ToSamples(5, groups, 0.5);

  ASSERT_EQ(samples.size(), 4);
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  EXPECT_NE(samples[1].group_id(), samples[2].group_id());
  EXPECT_EQ(samples[3].index(), 1);
  EXPECT_EQ(samples[0].temperature(), 0.5);
  EXPECT_THAT(samples[0].segments(1).logprobs(), ElementsAre(-1.0f, -2.0f));
  EXPECT_THAT(samples[0].segments(1).teacher_logprobs(), ElementsAre(-3.0f, -4.0f));
  EXPECT_THAT(samples[0].segments(1).teacher_top_ids(), ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(samples[0].segments(1).teacher_top_logprobs(),
              ElementsAre(-0.5f, -1.0f, -0.25f, -2.0f));
  EXPECT_THAT(samples[0].segments(1).token_rewards(), ElementsAre(0.5, 0.25));
  ASSERT_EQ(samples[0].reward_parts_size(), 2);
  EXPECT_EQ(samples[0].reward_parts(0).name(), "length");
  EXPECT_EQ(samples[0].reward_parts(0).value(), -3);
  EXPECT_EQ(samples[0].reward_parts(0).weight(), 0.5);
  EXPECT_EQ(samples[0].reward_parts(1).name(), "match");
}

TEST(SampleBuilder, TrainsOnTheTrainedRunsOfARow) {
  Prompt prompt;
  prompt.given = {{{{3, 12}, false}, {{5, 0}, true}, {{14}, false}, {{6, 0}, true}}};

  const std::vector<common::v1::Sample> samples = ToSupervisedSamples(1, 2, prompt);

  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].sample_id(), "1/2");
  ASSERT_EQ(samples[0].segments_size(), 4);
  EXPECT_THAT(samples[0].segments(0).token_ids(), ElementsAre(3, 12));
  EXPECT_EQ(samples[0].segments(0).kind(), common::v1::SEGMENT_KIND_PROMPT);
  EXPECT_EQ(samples[0].segments(1).kind(), common::v1::SEGMENT_KIND_SAMPLED);
  EXPECT_EQ(samples[0].segments(2).kind(), common::v1::SEGMENT_KIND_ENVIRONMENT);
  EXPECT_THAT(samples[0].segments(3).token_ids(), ElementsAre(6, 0));
}

TEST(SampleBuilder, KeepsTheSequencesOfARowInOneGroup) {
  Prompt prompt;
  prompt.given = {{{{3}, false}, {{5}, true}}, {{{4}, false}, {{6}, true}}};

  const std::vector<common::v1::Sample> samples = ToSupervisedSamples(1, 0, prompt);

  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  EXPECT_NE(samples[0].sample_id(), samples[1].sample_id());
}

TEST(SampleBuilder, CarriesTheRewardOfTheGreedyCompletion) {
  std::vector<Group> groups(1);
  groups[0].completions.resize(2);
  EXPECT_FALSE(ToSamples(1, groups, 1)[0].has_baseline_reward());
  groups[0].baseline.emplace().reward = 0.25;

  const std::vector<common::v1::Sample> samples = ToSamples(1, groups, 1);

  ASSERT_EQ(samples.size(), 2u);  // the baseline is not trained on
  EXPECT_EQ(samples[0].baseline_reward(), 0.25);
  EXPECT_EQ(samples[1].baseline_reward(), 0.25);
}

TEST(SampleBuilder, MakesAPairOfOneGroupOutOfChosenAndRejected) {
  Prompt prompt;
  prompt.given = {{{{3, 12}, false}, {{5, 0}, true}}, {{{3, 12}, false}, {{3, 4, 0}, true}}};

  const std::vector<common::v1::Sample> samples = ToPreferenceSamples(1, 4, prompt);

  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  EXPECT_NE(samples[0].sample_id(), samples[1].sample_id());
  EXPECT_GT(samples[0].reward(), samples[1].reward());
  EXPECT_THAT(samples[0].segments(1).token_ids(), ElementsAre(5, 0));
  EXPECT_THAT(samples[1].segments(1).token_ids(), ElementsAre(3, 4, 0));
}

}  // namespace
}  // namespace tandem::driver
