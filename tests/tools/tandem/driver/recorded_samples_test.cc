#include "tools/tandem/driver/recorded_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "common/model/model_spec.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/driver/experts_text.h"
#include "tools/tandem/driver/sample_builder.h"
#include "tools/tandem/driver/sample_lines.h"

namespace tandem::driver {
namespace {

using common::v1::Sample;
using common::v1::Segment;
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

TEST(RecordedSamples, ReadsBackTheEpisodesThatARunWrites) {
  Completion completion;
  completion.token_ids = {4, 0, 9, 5, 0, 1, 2, 6};
  completion.processed_logprobs = {-0.1f, -0.2f, 0, -0.3f, -0.4f, 0, 0, -1.0f / 3};
  completion.token_rewards = {0, 0.25, 0, 0, 0.5, 0, 0, 1.0 / 3};
  completion.teacher_logprobs = {-1, -2, 0, -3, -4, 0, 0, -5};
  completion.reward = 1.5;
  completion.finish_reason = common::v1::FINISH_REASON_MAX_TURNS;
  completion.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 2, 0.25},
                         {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0},
                         {common::v1::SEGMENT_KIND_SAMPLED, 2, 0.5},
                         {common::v1::SEGMENT_KIND_PROMPT, 2, 0},
                         {common::v1::SEGMENT_KIND_SAMPLED, 1, 0.75}};
  common::v1::VersionSpan& span = completion.version_spans.emplace_back();
  span.set_policy_version(3);
  span.set_end(2);
  Group group;
  group.prompt.token_ids = {7};
  group.completions = {completion, completion};
  const TempFolder folder;

  ASSERT_OK_AND_ASSIGN(
      const Recording recording,
      ReadRecording(folder.Write("1.jsonl", SampleLines(1, {group}, 0.5, /*version_shift=*/0)), 1));

  // Two sequences of each completion, as the run itself trained on them.
  const std::vector<Sample> expected = ToSamples(1, {group}, 0.5);
  ASSERT_EQ(recording.steps.size(), 1u);
  ASSERT_EQ(recording.steps[0].size(), 4u);
  EXPECT_THAT(GroupSizes(recording), ElementsAre(ElementsAre(4)));
  for (size_t i = 0; i < 4; ++i) {
    const Sample& found = recording.steps[0][i];
    EXPECT_EQ(found.reward(), 1.5);
    EXPECT_EQ(found.index(), static_cast<int>(i));
    EXPECT_EQ(found.finish_reason(), common::v1::FINISH_REASON_MAX_TURNS);
    ASSERT_EQ(found.segments_size(), expected[i].segments_size());
    for (int s = 0; s < found.segments_size(); ++s) {
      Segment segment = found.segments(s);
      Segment wanted = expected[i].segments(s);
      for (const bool is_trained : segment.loss_mask()) EXPECT_TRUE(is_trained);
      segment.clear_loss_mask();     // all of it: the same as none
      wanted.clear_version_spans();  // only checked
      EXPECT_EQ(segment.SerializeAsString(), wanted.SerializeAsString()) << i << ", " << s;
    }
  }
}

TEST(RecordedSamples, ReadsBackTheTeachersLogProbsOfOneTurn) {
  Group group;
  group.prompt.token_ids = {7};
  Completion& completion = group.completions.emplace_back();
  completion.token_ids = {4, 0};
  completion.processed_logprobs = {-0.5f, -0.25f};
  completion.teacher_logprobs = {-1.0f / 3, -2};
  const TempFolder folder;

  ASSERT_OK_AND_ASSIGN(const Recording recording,
                       ReadRecording(folder.Write("1.jsonl", SampleLines(1, {group}, 1, 0)), 1));
  EXPECT_THAT(recording.steps.at(0).at(0).segments(1).teacher_logprobs(),
              ElementsAre(-1.0f / 3, -2));
  EXPECT_THAT(
      ReadRecording(folder.Write("2.jsonl", Line(R"("teacher_logprobs": [-1], )")), 1).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("teacher_logprobs")));
}

// Two layers with four experts, one of which computes a token.
model::RoutedLayout Routed() {
  model::ModelSpec spec;
  spec.layers.resize(2);
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4, .intermediate_size = 8, .routing = {.top_k = 1}};
  }
  return model::RoutedLayout::Of(spec).value();
}

// The bytes of tokens whose experts are `first` and `second` in the two layers.
std::string Experts(std::initializer_list<std::pair<int, int>> tokens) {
  std::string bytes;
  for (const auto& [first, second] : tokens) {
    for (const int expert : {first, second}) {
      bytes.push_back(static_cast<char>(expert & 0xFF));
      bytes.push_back(static_cast<char>(expert >> 8));
    }
  }
  return bytes;
}

TEST(RecordedSamples, ReadsBackTheExpertsOfTokens) {
  Group group;
  group.prompt.token_ids = {7};
  Completion& completion = group.completions.emplace_back();
  completion.token_ids = {4, 0};
  completion.processed_logprobs = {-0.5f, -0.25f};
  completion.prompt_routed_experts = Experts({{0, 3}});
  completion.routed_experts = Experts({{2, 1}, {0xFFFF, 0xFFFF}});
  Completion& episode = group.completions.emplace_back(completion);
  episode.token_ids = {4, 9, 5};
  episode.processed_logprobs = {-0.5f, 0, -0.25f};
  episode.routed_experts = Experts({{2, 1}, {3, 3}, {0xFFFF, 0xFFFF}});
  episode.segments = {{common::v1::SEGMENT_KIND_SAMPLED, 1, 0},
                      {common::v1::SEGMENT_KIND_ENVIRONMENT, 1, 0},
                      {common::v1::SEGMENT_KIND_SAMPLED, 1, 0}};
  const TempFolder folder;
  const std::string path = folder.Write("1.jsonl", SampleLines(1, {group}, 1, 0));
  const model::RoutedLayout routed = Routed();

  ASSERT_OK_AND_ASSIGN(const Recording recording, ReadRecording(path, 1, &routed));

  const std::vector<Sample> expected = ToSamples(1, {group}, 1);
  ASSERT_EQ(recording.steps.at(0).size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    for (int s = 0; s < expected[i].segments_size(); ++s) {
      EXPECT_FALSE(expected[i].segments(s).routed_experts().empty());
      EXPECT_EQ(recording.steps[0][i].segments(s).routed_experts(),
                expected[i].segments(s).routed_experts());
    }
  }
  // Without a use for them they are left out.
  ASSERT_OK_AND_ASSIGN(const Recording without, ReadRecording(path, 1));
  EXPECT_TRUE(without.steps.at(0).at(0).segments(1).routed_experts().empty());
}

TEST(RecordedSamples, ExpertsThatDoNotFitAreRefused) {
  const TempFolder folder;
  const model::RoutedLayout routed = Routed();
  EXPECT_THAT(ReadRecording(folder.Write("b.jsonl", Line("")), 1, &routed).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("b.jsonl:1: routed_experts: expected the experts that sampling")));
  const auto with = [](const std::string& text) {
    return Line("\"routed_experts\": \"" + text + "\", ");
  };
  for (const auto& [text, says] : std::vector<std::pair<std::string, std::string>>{
           {"!", "expected base64"},
           {"aGVsbG8=", "expected a zstd frame"},
           {ExpertsText(Experts({{1, 1}})), "4 bytes for each of 2 tokens"},
           {ExpertsText(Experts({{1, 1}, {4, 1}})), "token 1, layer 0"},
           {ExpertsText(std::string(model::kMaxRoutedBytes + 4, 0)), "at most"}}) {
    EXPECT_THAT(
        ReadRecording(folder.Write("c.jsonl", with(text)), 1, &routed).status(),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 ::testing::AllOf(HasSubstr("c.jsonl:1: routed_experts: "), HasSubstr(says))))
        << text.substr(0, 40);
  }
}

TEST(RecordedSamples, ASegmentThatIsWrongNamesLineAndKey) {
  const TempFolder folder;
  const auto read = [&](const std::string& segments) {
    return ReadRecording(
               folder.Write("a.jsonl", R"({"rewards": 1, "segments": )" + segments + "}\n"), 1)
        .status();
  };
  EXPECT_THAT(read(R"([{"kind": "spoken", "ids": [1]}])"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("segments[0]: kind: expected prompt, sampled or observation")));
  EXPECT_THAT(read(R"([{"kind": "sampled", "ids": [1], "logprobs": [-1, -2]}])"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segments[0]: logprobs")));
  EXPECT_THAT(read(R"([{"kind": "sampled", "ids": [1], "mask": [1, 1]}])"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segments[0]: mask")));
  EXPECT_THAT(read("[]"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("segments")));
}

}  // namespace
}  // namespace tandem::driver
