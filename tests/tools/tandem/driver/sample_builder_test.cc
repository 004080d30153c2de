#include "tools/tandem/driver/sample_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SampleBuilder, KeepsGroupsTogetherAndCarriesProcessedLogProbs) {
  std::vector<Group> groups(2);
  for (Group& group : groups) {
    group.prompt.token_ids = {7};
    group.completions.resize(2);
    for (Completion& completion : group.completions) {
      completion.token_ids = {3, 0};
      completion.logprobs = {-9.0f, -9.0f};
      completion.processed_logprobs = {-1.0f, -2.0f};
      completion.token_rewards = {0.5, 0.25};
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
  EXPECT_THAT(samples[0].segments(1).token_rewards(), ElementsAre(0.5, 0.25));
}

TEST(SampleBuilder, EndsASupervisedCompletionWithTheEndOfSequence) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto tokenizer, LoadTokenizerIfAny(WriteTinyModel(folder)));
  Prompt prompt;
  prompt.token_ids = {3, 12, 4, 13};
  prompt.answer = "3";

  ASSERT_OK_AND_ASSIGN(const common::v1::Sample sample,
                       ToSupervisedSample(1, 0, prompt, *tokenizer, 0));

  EXPECT_THAT(sample.segments(0).token_ids(), ElementsAre(3, 12, 4, 13));
  EXPECT_THAT(sample.segments(1).token_ids(), ElementsAre(5, 0));
  EXPECT_EQ(sample.segments(1).kind(), common::v1::SEGMENT_KIND_SAMPLED);
}

TEST(SampleBuilder, TrainsAnEmptyAnswerOnTheEndOfSequenceAlone) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto tokenizer, LoadTokenizerIfAny(WriteTinyModel(folder)));
  Prompt prompt;
  prompt.token_ids = {3};

  ASSERT_OK_AND_ASSIGN(const common::v1::Sample sample,
                       ToSupervisedSample(1, 0, prompt, *tokenizer, 0));

  EXPECT_THAT(sample.segments(1).token_ids(), ElementsAre(0));
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
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto tokenizer, LoadTokenizerIfAny(WriteTinyModel(folder)));
  config::v1::DataConfig config;
  config.set_chosen_key("good");
  config.set_rejected_key("bad");
  Prompt prompt;
  prompt.token_ids = {3, 12, 4, 13};
  prompt.fields = {{"good", "3"}, {"bad", "12"}};

  ASSERT_OK_AND_ASSIGN(const std::vector<common::v1::Sample> samples,
                       ToPreferenceSamples(1, 4, prompt, config, *tokenizer, 0));

  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].group_id(), samples[1].group_id());
  EXPECT_NE(samples[0].sample_id(), samples[1].sample_id());
  EXPECT_GT(samples[0].reward(), samples[1].reward());
  EXPECT_THAT(samples[0].segments(1).token_ids(), ElementsAre(5, 0));
  EXPECT_THAT(samples[1].segments(1).token_ids(), ElementsAre(3, 4, 0));
}

TEST(SampleBuilder, NamesRowAndKeyOfAPairThatIsNone) {
  config::v1::DataConfig config;
  config.set_chosen_key("chosen");
  config.set_rejected_key("rejected");
  Prompt prompt;
  prompt.row = 6;
  prompt.fields = {{"chosen", "3"}};
  EXPECT_THAT(CheckPreferenceRow(prompt, config),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("row 7 of the data set: rejected: expected a string, found")));
}

}  // namespace
}  // namespace tandem::driver
