#include "tools/tandem/driver/recorded_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A line with the given fields, each followed by a comma.
std::string Line(const std::string& fields) {
  return "{" + fields + R"("prompt_ids": [1], "response_ids": [5, 6], "rewards": 1})" + "\n";
}

// Sizes of the groups of each step.
std::vector<std::vector<int>> GroupSizes(const Recording& recording) {
  std::vector<std::vector<int>> out;
  for (const auto& step : recording.steps) {
    std::map<std::string, int> sizes;
    for (const auto& sample : step) ++sizes[sample.group_id()];
    std::vector<int>& of_step = out.emplace_back();
    for (const auto& [group, size] : sizes) of_step.push_back(size);
  }
  return out;
}

TEST(RecordedSamples, AStepHasTheGroupsThatItWasRecordedWith) {
  const TempFolder folder;
  const std::string path =
      folder.Write("samples.jsonl", Line(R"("step": 1, "group": "1/0", "index": 0, )") +
                                        Line(R"("step": 1, "group": "1/0", "index": 1, )") +
                                        Line(R"("step": 1, "group": "1/1", "index": 0, )") +
                                        Line(R"("step": 2, "group": "2/0", "index": 0, )") +
                                        Line(R"("step": 4, "group": "4/0", "index": 0, )"));

  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(path, /*groups_per_step=*/2));

  EXPECT_THAT(GroupSizes(recording),
              ElementsAre(ElementsAre(2, 1), ElementsAre(1), ElementsAre(1)));
}

// Older releases wrote the row of the data set as the group.
TEST(RecordedSamples, NeighboursOfOneRowAreGroupsOfTheirOwn) {
  const TempFolder folder;
  std::string text;
  for (const char* step : {"1", "1", "2"}) {
    for (const char* index : {"0", "1"}) {
      text += Line(std::string(R"("step": )") + step + R"(, "group": 7, "index": )" + index + ", ");
    }
  }

  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       ReadRecording(folder.Write("samples.jsonl", text), /*groups_per_step=*/8));

  EXPECT_THAT(GroupSizes(recording), ElementsAre(ElementsAre(2, 2), ElementsAre(2)));
}

TEST(RecordedSamples, WithoutStepsABatchIsAStep) {
  const TempFolder folder;
  std::string text;
  for (const char* group : {"a", "a", "b", "c", "c", "a"}) {
    text += Line(std::string(R"("group": ")") + group + R"(", )");
  }

  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       ReadRecording(folder.Write("samples.jsonl", text), /*groups_per_step=*/2));

  EXPECT_THAT(GroupSizes(recording), ElementsAre(ElementsAre(2, 1), ElementsAre(2, 1)));
}

TEST(RecordedSamples, FilesOfAFolderComeInTheOrderOfTheirSteps) {
  const TempFolder folder;
  for (const char* step : {"2", "10", "1"}) {
    folder.Write(std::string("rollouts/") + step + ".jsonl",
                 Line(std::string(R"("step": )") + step + R"(, "temperature": )" + step + ", "));
  }

  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(folder / "rollouts", 1));

  ASSERT_EQ(recording.steps.size(), 3);
  EXPECT_EQ(recording.steps[0][0].temperature(), 1);
  EXPECT_EQ(recording.steps[1][0].temperature(), 2);
  EXPECT_EQ(recording.steps[2][0].temperature(), 10);
}

TEST(RecordedSamples, RewardsOfTokensStayWithTheirTokens) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "samples.jsonl", "{\"prompt_ids\": [1], \"response_ids\": [5, 6], \"rewards\": [1, 2]}\n" +
                           Line(R"("token_rewards": [0.5, 0.25], )"));

  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(path, 2));

  ASSERT_EQ(recording.steps.size(), 1);
  const auto& samples = recording.steps[0];
  EXPECT_EQ(samples[0].reward(), 3);
  EXPECT_THAT(samples[0].segments(1).token_rewards(), ElementsAre(1, 2));
  EXPECT_EQ(samples[1].reward(), 1);
  EXPECT_THAT(samples[1].segments(1).token_rewards(), ElementsAre(0.5, 0.25));
}

TEST(RecordedSamples, ScoresOfSeveralRewardsKeepNamesAndWeights) {
  const TempFolder folder;
  const std::string path = folder.Write(
      "samples.jsonl",
      Line(R"("scores": {"length": -3, "match": 1}, "score_weights": {"length": 0.5}, )"));

  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(path, 1));

  const common::v1::Sample& sample = recording.steps.at(0).at(0);
  ASSERT_EQ(sample.reward_parts_size(), 2);
  EXPECT_EQ(sample.reward_parts(0).name(), "length");
  EXPECT_EQ(sample.reward_parts(0).value(), -3);
  EXPECT_EQ(sample.reward_parts(0).weight(), 0.5);
  EXPECT_EQ(sample.reward_parts(1).weight(), 1);
}

TEST(RecordedSamples, AScoreThatIsNoNumberIsRefused) {
  const TempFolder folder;
  const std::string path = folder.Write("samples.jsonl", Line(R"("scores": {"match": "yes"}, )"));

  EXPECT_THAT(ReadRecording(path, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("number for match")));
}

TEST(RecordedSamples, AStepOnSomeLinesOnlyIsRefused) {
  const TempFolder folder;
  const std::string path = folder.Write("samples.jsonl", Line(R"("step": 1, )") + Line(""));

  EXPECT_THAT(ReadRecording(path, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("samples.jsonl:2: step")));
}

}  // namespace
}  // namespace tandem::driver
