#include "services/trainer/data/sample_validation.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class SampleValidation : public ::testing::Test {
 protected:
  SampleValidation() {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
      segments { kind: SEGMENT_KIND_PROMPT token_ids: [1, 2, 3] }
      segments {
        kind: SEGMENT_KIND_SAMPLED token_ids: [4, 5] logprobs: [-1, -0.5] loss_mask: [true, false]
        version_spans { policy_version: 3 end: 1 } version_spans { policy_version: 4 begin: 1 end: 2 }
      }
      reward: 0.5 temperature: 1)",
                                                              &sample_));
    limits_.vocab_size = 4096;
    limits_.max_position_embeddings = 8;
    limits_.needs_advantages = true;
  }

  common::v1::Segment& sampled() { return *sample_.mutable_segments(1); }
  absl::Status Validate() const { return ValidateSample(sample_, "samples[3]", limits_); }

  common::v1::Sample sample_;
  SampleLimits limits_;
};

TEST_F(SampleValidation, AcceptsACompleteSample) { EXPECT_THAT(Validate(), IsOk()); }

TEST_F(SampleValidation, NamesTheTokenOutsideTheVocabulary) {
  sampled().set_token_ids(1, 5000);

  const absl::Status status = Validate();

  EXPECT_THAT(status, StatusIs(kInvalid,
                               "samples[3].segments[1].token_ids[1]: 5000 is outside the "
                               "vocabulary of 4096"));
  const auto field = rpc::GetDetail<common::v1::BadField>(status);
  ASSERT_TRUE(field.has_value());
  EXPECT_EQ(field->field(), "samples[3].segments[1].token_ids[1]");
}

TEST_F(SampleValidation, ExpertsAreThoseThatTheModelHas) {
  sampled().set_routed_experts(std::string(2 * 8, '\0'));
  EXPECT_THAT(Validate(),
              StatusIs(kInvalid, AllOf(HasSubstr("samples[3].segments[1].routed_experts"),
                                       HasSubstr("no experts to route to"))));
  model::ModelSpec spec;
  spec.layers.resize(2);
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 4, .intermediate_size = 8, .routing = {.top_k = 2}};
  }
  limits_.routed_layout = model::RoutedLayout::Of(spec).value();
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("token 0, layer 0")));
  const std::string token("\x00\x00\x03\x00\x01\x00\x02\x00", 8);
  sampled().set_routed_experts(token + std::string(8, '\xFF'));
  EXPECT_THAT(Validate(), IsOk());
  sample_.mutable_segments(0)->set_routed_experts(token + token + token);
  EXPECT_THAT(Validate(), IsOk());
  sample_.mutable_segments(0)->set_routed_experts(token + token);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, AllOf(HasSubstr("segments[0].routed_experts"),
                                                   HasSubstr("8 bytes for each of the 3"))));
}

TEST_F(SampleValidation, ReplayNeedsTheExpertsOfSampledTokens) {
  limits_.needs_routed_experts = true;
  EXPECT_THAT(Validate(),
              StatusIs(kInvalid, AllOf(HasSubstr("samples[3].segments[1].routed_experts"),
                                       HasSubstr("actor.router_replay"))));
}

TEST_F(SampleValidation, RefusesAmountsThatTrainNothing) {
  sample_.set_reward(1e308);
  EXPECT_THAT(Validate(), StatusIs(kInvalid,
                                   "samples[3].reward: expected a finite number from -1e+09 to "
                                   "1e+09; found 1e+308"));
  sample_.set_reward(-1e9);
  EXPECT_THAT(Validate(), IsOk());
  sample_.set_baseline_reward(2e9);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].baseline_reward")));
  sample_.clear_baseline_reward();
  sampled().add_advantages(1);
  sampled().add_advantages(-1e10f);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].segments[1].advantages[1]")));
}

TEST_F(SampleValidation, RefusesSamplesWithoutTheRewardsToNormalise) {
  limits_.needs_reward_parts = true;
  sample_.set_sample_id("7/0/3");
  EXPECT_THAT(Validate(), StatusIs(kInvalid, AllOf(HasSubstr("samples[3].reward_parts"),
                                                   HasSubstr("sample \"7/0/3\" has none"))));
  sample_.add_reward_parts()->set_name("match");
  EXPECT_THAT(Validate(), IsOk());
  sample_.add_reward_parts()->set_name("match");
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].reward_parts[1].name")));
  sample_.mutable_reward_parts(1)->set_name("length");
  sample_.mutable_reward_parts(1)->set_weight(std::numeric_limits<double>::infinity());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].reward_parts[1].weight")));
}

TEST_F(SampleValidation, RefusesSamplesThatTheTeacherDidNotScore) {
  limits_.needs_teacher_logprobs = true;
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].segments[1].teacher_logprobs: "
                                                       "expected the teacher's log-probs")));
  sampled().add_teacher_logprobs(-1);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("one for each of the 2 token_ids")));
  sampled().add_teacher_logprobs(-2);
  EXPECT_THAT(Validate(), IsOk());
  sampled().set_teacher_logprobs(1, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Validate(),
              StatusIs(kInvalid, HasSubstr("samples[3].segments[1].teacher_logprobs[1]")));
  sampled().clear_teacher_logprobs();
  sample_.mutable_segments(0)->add_teacher_logprobs(-1);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("segments[0].teacher_logprobs")));
}

TEST_F(SampleValidation, RefusesOtherNumbersOfLikeliestTokens) {
  limits_.num_teacher_top = 2;
  const auto set = [this](std::vector<uint32_t> ids, std::vector<float> logprobs) {
    sampled().mutable_teacher_top_ids()->Assign(ids.begin(), ids.end());
    sampled().mutable_teacher_top_logprobs()->Assign(logprobs.begin(), logprobs.end());
    return Validate();
  };
  EXPECT_THAT(set({}, {}), StatusIs(kInvalid, HasSubstr("samples[3].segments[1].teacher_top_ids: "
                                                        "expected 2 for each of the 2")));
  EXPECT_THAT(set({1, 2}, {-1, -2}), StatusIs(kInvalid, HasSubstr("teacher.top_k")));
  EXPECT_THAT(set({1, 2, 3, 4}, {-1, -2, -3}),
              StatusIs(kInvalid, HasSubstr("segments[1].teacher_top_logprobs")));
  EXPECT_THAT(set({1, 2, 3, 4}, {-1, -2, -3, -4}), IsOk());
  EXPECT_THAT(set({1, 2, 3, 4096}, {-1, -2, -3, -4}),
              StatusIs(kInvalid, HasSubstr("teacher_top_ids[3]: 4096 is outside")));
  EXPECT_THAT(set({1, 2, 3, 4}, {-1, -2, 0.5, -4}),
              StatusIs(kInvalid, HasSubstr("teacher_top_logprobs[2]")));
  limits_.num_teacher_top = 0;  // not read, and bounded all the same
  EXPECT_THAT(set({1, 2, 3}, {-1, -2, -3}), StatusIs(kInvalid, HasSubstr("as many for each")));
  EXPECT_THAT(set(std::vector<uint32_t>(2050, 1), std::vector<float>(2050, -1)),
              StatusIs(kInvalid, HasSubstr("at most 1024")));
}

TEST_F(SampleValidation, NamesTheSampleWhoseRewardPartsDiffer) {
  common::v1::RewardPart& part = *sample_.add_reward_parts();
  part.set_name("match");
  part.set_weight(2);
  common::v1::Sample other = sample_;
  other.set_sample_id("7/1/0");
  other.mutable_reward_parts(0)->set_value(-1);
  EXPECT_THAT(CheckSameRewardParts(sample_, other, "samples[4]"), IsOk());

  other.mutable_reward_parts(0)->set_weight(1);

  EXPECT_THAT(
      CheckSameRewardParts(sample_, other, "samples[4]"),
      StatusIs(kInvalid, AllOf(HasSubstr("samples[4].reward_parts"), HasSubstr("7/1/0"),
                               HasSubstr("match (weight 2)"), HasSubstr("match (weight 1)"))));
  other.clear_reward_parts();
  EXPECT_THAT(CheckSameRewardParts(sample_, other, "samples[4]"),
              StatusIs(kInvalid, HasSubstr("has none")));
}

TEST_F(SampleValidation, RefusesListsOfUnequalLength) {
  sampled().add_logprobs(-1);
  EXPECT_THAT(Validate(),
              StatusIs(kInvalid, HasSubstr("samples[3].segments[1].logprobs: expected one "
                                           "for each of the 2 token_ids")));
  sampled().clear_logprobs();
  sampled().add_loss_mask(true);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("loss_mask")));
}

TEST_F(SampleValidation, RefusesASequenceLongerThanTheModels) {
  limits_.max_position_embeddings = 4;
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("at most 4 tokens")));
}

TEST_F(SampleValidation, RefusesASampleWithoutTokensAndASegmentWithoutKind) {
  sample_.mutable_segments(0)->set_kind(common::v1::SEGMENT_KIND_UNSPECIFIED);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].segments[0].kind")));
  sample_.clear_segments();
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("expected tokens; found none")));
}

TEST_F(SampleValidation, RefusesNumbersThatAreNotFinite) {
  sampled().set_logprobs(0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("logprobs[0]")));
  sampled().set_logprobs(0, -1);
  sample_.set_reward(std::numeric_limits<double>::infinity());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].reward")));
  sample_.set_reward(0);
  sample_.set_temperature(-1);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].temperature")));
  sample_.set_temperature(1);
  sampled().set_logprobs(1, -std::numeric_limits<float>::infinity());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("logprobs[1]")));
  sampled().set_logprobs(1, -1);
  sample_.set_baseline_reward(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].baseline_reward")));
}

TEST_F(SampleValidation, RefusesTokenRewardsThatAreTooFewOrOutOfRange) {
  sampled().add_token_rewards(1);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("segments[1].token_rewards: expected one")));
  sampled().add_token_rewards(-1);
  EXPECT_THAT(Validate(), IsOk());
  sampled().set_token_rewards(1, -2e9);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("segments[1].token_rewards[1]")));
}

TEST_F(SampleValidation, RefusesARewardThatIsNotFiniteBesideAdvantages) {
  sampled().add_advantages(1);
  sampled().add_advantages(-1);
  EXPECT_THAT(Validate(), IsOk());
  // It counts in its group all the same.
  sample_.set_reward(std::numeric_limits<double>::quiet_NaN());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].reward")));
  sample_.set_reward(0);
  sampled().set_advantages(1, std::numeric_limits<float>::infinity());
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("segments[1].advantages[1]")));
}

TEST_F(SampleValidation, WantsTheGreedyRewardWhereItIsTheBaseline) {
  limits_.needs_baseline_reward = true;
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].baseline_reward")));
  sample_.set_baseline_reward(0);
  EXPECT_THAT(Validate(), IsOk());
}

TEST_F(SampleValidation, RefusesVersionSpansWithAGap) {
  sampled().mutable_version_spans(1)->set_begin(2);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("version_spans[1]")));
}

TEST_F(SampleValidation, RefusesLogProbsOfWhatWasNotSampled) {
  sample_.mutable_segments(0)->add_logprobs(-1);
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("samples[3].segments[0].logprobs")));
}

TEST_F(SampleValidation, WantsRolloutLogProbsWhereTheRatioIsMadeOfThem) {
  limits_.needs_rollout_logprobs = true;
  EXPECT_THAT(Validate(), IsOk());
  sampled().clear_logprobs();
  EXPECT_THAT(Validate(), StatusIs(kInvalid, HasSubstr("bypass_mode")));
}

}  // namespace
}  // namespace tandem::trainer
