#include "services/trainer/data/micro_batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;

common::v1::Sample Parse(const std::string& text) {
  common::v1::Sample out;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &out));
  return out;
}

std::vector<int64_t> Integers(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<int64_t>(), tensor.const_data_ptr<int64_t>() + tensor.numel()};
}
std::vector<float> Floats(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

// Two turns with a tool's answer between them, one token of the second masked out.
const char kTwoTurns[] = R"(
  group_id: "a"
  segments { kind: SEGMENT_KIND_PROMPT token_ids: [10, 11] }
  segments { kind: SEGMENT_KIND_SAMPLED token_ids: [20, 21] logprobs: [-0.5, -0.25] }
  segments { kind: SEGMENT_KIND_ENVIRONMENT token_ids: [30, 31, 32] }
  segments { kind: SEGMENT_KIND_SAMPLED token_ids: [22, 23, 24] loss_mask: [true, false, true] }
  temperature: 0.5 reward: 2 finish_reason: FINISH_REASON_LENGTH)";
const char kShort[] = R"(
  group_id: "b"
  segments { kind: SEGMENT_KIND_PROMPT token_ids: [12] }
  segments { kind: SEGMENT_KIND_SAMPLED token_ids: [25, 26] logprobs: [-1, -2] })";

TEST(TrainingBatch, TrainsOnSampledTokensOfTheLossMaskOnly) {
  const TrainingBatch batch = MakeTrainingBatch({Parse(kTwoTurns), Parse(kShort)});

  ASSERT_EQ(batch.sequences.size(), 2u);
  const Sequence& first = batch.sequences[0];
  EXPECT_THAT(first.token_ids, ElementsAre(10, 11, 20, 21, 30, 31, 32, 22, 23, 24));
  EXPECT_THAT(first.trained, ElementsAre(2, 3, 7, 9));
  EXPECT_EQ(first.prompt_tokens, 2);
  EXPECT_EQ(first.response_tokens, 5);
  EXPECT_TRUE(first.is_cut);
  EXPECT_EQ(first.temperature, 0.5);
  EXPECT_EQ(batch.sequences[1].temperature, 1.0);  // 0 counts as 1
  EXPECT_EQ(batch.num_groups, 2);
  EXPECT_EQ(batch.num_trained_tokens(), 6);
}

TEST(TrainingBatch, TakesTheTeachersWordOnTrainedTokensOnly) {
  common::v1::Sample sample = Parse(kTwoTurns);
  for (const float value : {-1, -2}) sample.mutable_segments(1)->add_teacher_logprobs(value);
  EXPECT_TRUE(MakeTrainingBatch({sample}).sequences[0].teacher_logprobs.empty());
  for (const float value : {-3, -4, -5}) sample.mutable_segments(3)->add_teacher_logprobs(value);
  for (const int s : {1, 3}) {
    common::v1::Segment& segment = *sample.mutable_segments(s);
    for (int i = 0; i < 2 * segment.token_ids_size(); ++i) {
      segment.add_teacher_top_ids(10 * s + i);
      segment.add_teacher_top_logprobs(static_cast<float>(-i));
    }
  }

  TrainingBatch batch = MakeTrainingBatch({sample});

  Sequence& sequence = batch.sequences[0];
  EXPECT_THAT(sequence.teacher_logprobs, ElementsAre(-1, -2, -3, -5));
  EXPECT_EQ(sequence.num_teacher_top, 2);
  EXPECT_THAT(sequence.teacher_top_ids, ElementsAre(10, 11, 12, 13, 30, 31, 34, 35));
  EXPECT_THAT(sequence.teacher_top_logprobs, ElementsAre(0, -1, -2, -3, 0, -1, -4, -5));

  KeepTokens(sequence, {true, false, false, true});
  EXPECT_THAT(sequence.teacher_logprobs, ElementsAre(-1, -5));
  EXPECT_THAT(sequence.teacher_top_ids, ElementsAre(10, 11, 34, 35));

  MicroBatch micro_batch = PackMicroBatch(batch, {0}, {1.0});
  EXPECT_THAT(Floats(micro_batch.teacher_logprobs), ElementsAre(-1, -5));
  EXPECT_FALSE(micro_batch.packed.soft_ids.defined());
  AddTeacherTargets(batch, {0}, micro_batch);
  EXPECT_THAT(Integers(micro_batch.packed.soft_ids), ElementsAre(10, 11, 34, 35));
  EXPECT_EQ(micro_batch.packed.soft_weights.sizes(), at::IntArrayRef({2, 2}));
  EXPECT_THAT(Floats(micro_batch.packed.soft_weights),
              ElementsAre(1.0f, std::exp(-1.0f), std::exp(-4.0f), std::exp(-5.0f)));
}

TEST(TrainingBatch, ExpertsAreThoseOfTheTokensThatTheModelReads) {
  common::v1::Sample sample = Parse(kShort);
  EXPECT_TRUE(MakeTrainingBatch({sample}).sequences[0].routed_experts.empty());
  // Two experts of each token; the prompt's are unknown.
  sample.mutable_segments(1)->set_routed_experts(
      std::string("\x01\x00\x02\x01\xFF\xFF\xFF\xFF", 8));
  const TrainingBatch batch = MakeTrainingBatch({sample, Parse(kTwoTurns)});
  EXPECT_THAT(batch.sequences[0].routed_experts,
              ElementsAre(0xFFFF, 0xFFFF, 1, 258, 0xFFFF, 0xFFFF));

  const MicroBatch packed = PackMicroBatch(batch, {1, 0}, {1.0, 1.0});
  // Nothing is predicted from the last token of a sequence: 9 tokens, then 2.
  ASSERT_EQ(packed.packed.routed_experts.sizes(), (std::vector<int64_t>{11, 2}));
  EXPECT_TRUE(packed.packed.routed_experts.narrow(0, 0, 10).eq(-1).all().item<bool>());
  EXPECT_EQ(packed.packed.routed_experts[10][0].item<int>(), 1);
  EXPECT_EQ(packed.packed.routed_experts[10][1].item<int>(), 258);
  EXPECT_FALSE(PackMicroBatch(batch, {1}, {1.0, 1.0}).packed.routed_experts.defined());
}

TEST(TrainingBatch, TokenRewardsOfMaskedTokensPassToTheTrainedOneBefore) {
  common::v1::Sample sample = Parse(kTwoTurns);
  for (const double reward : {1, 2}) sample.mutable_segments(1)->add_token_rewards(reward);
  for (const double reward : {4, 8, 16}) sample.mutable_segments(3)->add_token_rewards(reward);

  const TrainingBatch batch = MakeTrainingBatch({sample, Parse(kShort)});

  EXPECT_THAT(batch.sequences[0].token_rewards, ElementsAre(1, 2, 12, 16));
  EXPECT_TRUE(batch.sequences[1].token_rewards.empty());
}

TEST(TrainingBatch, TokenRewardsBeforeTheFirstTrainedTokenPassToIt) {
  const TrainingBatch batch = MakeTrainingBatch(
      {Parse("segments { kind: SEGMENT_KIND_SAMPLED token_ids: [1, 2, 3] loss_mask: [true, false, "
             "true] token_rewards: [1, 2, 4] }")});
  EXPECT_THAT(batch.sequences[0].token_rewards, ElementsAre(7));
}

TEST(TrainingBatch, NumbersGroupsInOrderOfAppearanceAndTakesNamelessSamplesForGroups) {
  const TrainingBatch batch = MakeTrainingBatch({Parse(kShort), Parse(kTwoTurns), Parse(kShort),
                                                 Parse("segments { kind: SEGMENT_KIND_PROMPT }")});
  EXPECT_EQ(batch.sequences[0].group, 0);
  EXPECT_EQ(batch.sequences[1].group, 1);
  EXPECT_EQ(batch.sequences[2].group, 0);
  EXPECT_EQ(batch.sequences[3].group, 2);
}

TEST(TrainingBatch, PredictsNoTokenThatHasNoneBeforeIt) {
  const TrainingBatch batch =
      MakeTrainingBatch({Parse("segments { kind: SEGMENT_KIND_SAMPLED token_ids: [1, 2, 3] }")});
  EXPECT_THAT(batch.sequences[0].trained, ElementsAre(1, 2));
}

TEST(MicroBatch, PacksSequencesWithoutPaddingAndRowsOfTrainedTokens) {
  const TrainingBatch batch = MakeTrainingBatch({Parse(kTwoTurns), Parse(kShort)});

  const MicroBatch actual = PackMicroBatch(batch, {0, 1}, {0.5, 0.25});

  // The last token of each sequence predicts nothing and is left out.
  EXPECT_THAT(Integers(actual.packed.token_ids),
              ElementsAre(10, 11, 20, 21, 30, 31, 32, 22, 23, 12, 25));
  EXPECT_THAT(Integers(actual.packed.positions), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1));
  EXPECT_THAT(actual.packed.cu_seqlens, ElementsAre(0, 9, 11));
  EXPECT_THAT(Integers(actual.packed.rows), ElementsAre(1, 2, 6, 8, 9, 10));
  EXPECT_THAT(Integers(actual.packed.targets), ElementsAre(20, 21, 22, 24, 25, 26));
  EXPECT_THAT(Floats(actual.packed.temperatures), ElementsAre(0.5, 0.5, 0.5, 0.5, 1, 1));
  EXPECT_THAT(Integers(actual.sequence_index), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(Floats(actual.loss_weights), ElementsAre(0.5, 0.5, 0.5, 0.5, 0.25, 0.25));
  const std::vector<float> rollout = Floats(actual.rollout_logprobs);
  EXPECT_EQ(rollout[1], -0.25f);
  EXPECT_TRUE(std::isnan(rollout[2])) << "the second turn states none";
  EXPECT_EQ(rollout[5], -2.0f);
}

TEST(MicroBatch, OfNothingIsEmpty) {
  const MicroBatch actual = PackMicroBatch(TrainingBatch(), {}, {});
  EXPECT_EQ(actual.packed.num_tokens(), 0);
  EXPECT_EQ(actual.packed.num_sequences(), 0);
  EXPECT_EQ(actual.num_rows(), 0);
}

}  // namespace
}  // namespace tandem::trainer
