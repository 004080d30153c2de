// Direct preference optimisation against transformers and PyTorch: one pair's loss, and four whole
// steps, on any ranks; and what is no pair.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>

#include "services/trainer/algorithm/preference_loss.h"
#include "services/trainer/algorithm/preference_step.h"
#include "services/trainer/data/preference_pairs.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/algorithm/critic_golden.h"
#include "tests/services/trainer/algorithm/golden.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST(PreferenceLoss, EveryTypeOfTheConfigurationIsComputed) {
  for (int i = config::v1::DpoLossType_MIN + 1; i <= config::v1::DpoLossType_MAX; ++i) {
    const auto type = static_cast<config::v1::DpoLossType>(i);
    EXPECT_NE(FindPreferenceLoss(type), nullptr) << config::v1::DpoLossType_Name(type);
  }
  EXPECT_EQ(FindPreferenceLoss(config::v1::DPO_LOSS_TYPE_UNSPECIFIED), nullptr);
}

TEST(PreferenceLoss, OfEveryTypeAndItsGradientsArePyTorchs) {
  const std::map<std::string, const PreferenceLossKind*> kinds = {
      {"sigmoid", &kSigmoidPreferenceLoss},
      {"sigmoid_norm", &kSigmoidNormPreferenceLoss},
      {"ipo", &kIpoPreferenceLoss},
      {"hinge", &kHingePreferenceLoss},
      {"robust", &kRobustPreferenceLoss}};
  const auto file =
      io::ReadJsonFile(SourcePath("tests/services/trainer/algorithm/preference_golden.json"));
  ASSERT_TRUE(file.ok()) << file.status();
  const nlohmann::json& cases = file->at("preference_loss");
  ASSERT_EQ(cases.size(), 2 * kinds.size());
  for (const nlohmann::json& golden : cases) {
    const auto name = golden["name"].get<std::string>();
    SCOPED_TRACE(name);
    const at::Tensor chosen = Vector(golden["chosen"]).requires_grad_(true);
    const at::Tensor rejected = Vector(golden["rejected"]).requires_grad_(true);

    const PreferenceLoss loss = ComputePreferenceLoss(
        chosen, rejected, Vector(golden["ref_chosen"]), Vector(golden["ref_rejected"]),
        {golden["beta"].get<double>(), golden["label_smoothing"].get<double>(), kinds.at(name)});

    EXPECT_LT(Difference(loss.loss, Vector(golden["loss"])), 1e-10);
    const auto gradients = torch::autograd::grad({loss.loss.sum()}, {chosen, rejected});
    EXPECT_LT(Difference(gradients[0], Vector(golden["chosen_grad"])), 1e-10);
    EXPECT_LT(Difference(gradients[1], Vector(golden["rejected_grad"])), 1e-10);
  }
}

TEST(PreferenceLoss, AndItsGradientsArePyTorchs) {
  const nlohmann::json all = ReadCriticGolden();
  for (const nlohmann::json& golden : all["preference_loss"]) {
    const at::Tensor chosen = Vector(golden["chosen"]).requires_grad_(true);
    const at::Tensor rejected = Vector(golden["rejected"]).requires_grad_(true);

    const PreferenceLoss loss = ComputePreferenceLoss(
        chosen, rejected, Vector(golden["ref_chosen"]), Vector(golden["ref_rejected"]),
        {golden["beta"].get<double>(), golden["label_smoothing"].get<double>()});

    EXPECT_LT(Difference(loss.loss, Vector(golden["loss"])), 1e-12);
    EXPECT_LT(Difference(loss.chosen_rewards, Vector(golden["chosen_rewards"])), 1e-12);
    EXPECT_LT(Difference(loss.rejected_rewards, Vector(golden["rejected_rewards"])), 1e-12);
    const auto gradients = torch::autograd::grad({loss.loss.sum()}, {chosen, rejected});
    EXPECT_LT(Difference(gradients[0], Vector(golden["chosen_grad"])), 1e-12);
    EXPECT_LT(Difference(gradients[1], Vector(golden["rejected_grad"])), 1e-12);
  }
}

// The golden script's pairs; in every second one the chosen sample comes last.
TrainingBatch GoldenPairs(const nlohmann::json& golden) {
  TrainingBatch batch;
  batch.num_groups = static_cast<int64_t>(golden["pairs"].size());
  for (size_t p = 0; p < golden["pairs"].size(); ++p) {
    for (const size_t i : {p % 2, 1 - p % 2}) {
      batch.sequences.push_back(GoldenSequence(golden["pairs"][p][i], golden["prompts"][p],
                                               static_cast<int64_t>(p), i == 0 ? 0.5 : -0.5));
    }
  }
  return batch;
}

struct PreferenceCase {
  int ranks;
  int64_t max_tokens;
};

class PreferenceSteps : public ::testing::TestWithParam<PreferenceCase> {};

TEST_P(PreferenceSteps, AreTransformersAndPyTorchs) {
  const nlohmann::json golden = ReadCriticGolden()["preference"];
  const PreferenceOptions options{
      {golden["beta"].get<double>(), golden["label_smoothing"].get<double>()},
      GetParam().max_tokens};
  testing::LocalMesh world({.dp_shard = GetParam().ranks});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const auto policy = GoldenModel(mesh, /*value_head=*/false);
    const auto reference = GoldenModel(mesh, /*value_head=*/false, /*trainable=*/false);
    AdamW optimizer({}, *policy, mesh);
    PreferenceStep step(options, *policy, optimizer, mesh);
    for (const nlohmann::json& expected : golden["steps"]) {
      ASSERT_OK_AND_ASSIGN(const StepResult result,
                           step.Run(GoldenPairs(golden), *reference, golden["lr"]));
      EXPECT_TRUE(result.weights_changed);
      ExpectMetrics(result.metrics, expected);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, PreferenceSteps,
                         ::testing::Values(PreferenceCase{1, 4096}, PreferenceCase{1, 20},
                                           PreferenceCase{2, 4096}, PreferenceCase{3, 9}),
                         [](const ::testing::TestParamInfo<PreferenceCase>& info) {
                           return "Ranks" + std::to_string(info.param.ranks) + "Tokens" +
                                  std::to_string(info.param.max_tokens);
                         });

TEST(PreferencePairs, AreTheTwoSamplesOfAGroupWithTheLargerRewardFirst) {
  TrainingBatch batch;
  batch.num_groups = 2;
  for (const auto& [group, reward] : {std::pair{0, 0.0}, {1, 3.0}, {0, 1.0}, {1, -2.0}}) {
    batch.sequences.push_back(GoldenSequence({1, 2, 3}, 1, group, reward));
  }

  ASSERT_OK_AND_ASSIGN(const std::vector<PreferencePair> pairs, FindPreferencePairs(batch));

  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].chosen, 2);
  EXPECT_EQ(pairs[0].rejected, 0);
  EXPECT_EQ(pairs[1].chosen, 1);
  EXPECT_EQ(pairs[1].rejected, 3);
}

TEST(PreferencePairs, RefusesEqualRewardsGroupsThatAreNoPairsAndEmptyCompletions) {
  const auto refused = [](std::vector<Sequence> sequences, const char* why) {
    TrainingBatch batch;
    batch.num_groups = 1;
    batch.sequences = std::move(sequences);
    EXPECT_THAT(FindPreferencePairs(batch).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  const Sequence good = GoldenSequence({1, 2, 3}, 1, 0, 1.0);
  const Sequence bad = GoldenSequence({1, 2, 3}, 1, 0, 0.0);
  refused({good, good}, "samples[0].reward: expected two different finite rewards");
  refused({good, bad, bad}, "samples[0].group_id: expected a group of two samples");
  refused({good}, "found 1");
  refused({good, GoldenSequence({1, 2}, 2, 0, 0.0)}, "samples[1].segments: expected a token");
}

}  // namespace
}  // namespace tandem::trainer
