// The loss of a micro-batch, and its gradient with respect to log-probs, against PyTorch: every
// loss mode with every aggregation, with and without importance weights.
#include "services/trainer/algorithm/policy_objective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/fakes/local_process_group.h"
#include "tests/services/trainer/algorithm/batch_golden.h"

namespace tandem::trainer {
namespace {

// Inputs are float32; the largest ratio is e^20.
constexpr double kObjectiveTolerance = 2e-6;

using Sum = UpdateStatistics::Sum;

struct NamedMode {
  const char* name;
  const PolicyLossKind* mode;
};
constexpr NamedMode kModes[] = {
    {"vanilla", &kVanillaLoss}, {"gspo", &kGspoLoss}, {"cispo", &kCispoLoss}, {"sapo", &kSapoLoss}};

struct NamedAggregation {
  const char* name;
  LossAggregation mode;
};
constexpr NamedAggregation kAggregations[] = {
    {"token_mean", LossAggregation::kTokenMean},
    {"token_sum", LossAggregation::kTokenSum},
    {"seq_mean_token_sum", LossAggregation::kSeqMeanTokenSum},
    {"seq_mean_token_mean", LossAggregation::kSeqMeanTokenMean},
    {"seq_mean_token_sum_norm", LossAggregation::kSeqMeanTokenSumNorm}};

class PolicyObjectiveGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const nlohmann::json all = ReadBatchGolden();
    golden_ = all["losses"];
    batch_ = GoldenBatch(all);
    SetTokens(batch_, &Sequence::old_logprobs, golden_["old"]);
    SetTokens(batch_, &Sequence::advantages, golden_["advantages"]);
    logprobs_ = at::tensor(golden_["logprobs"].get<std::vector<float>>(), at::kFloat);
  }

  PolicyObjectiveOptions Options(const PolicyLossKind* mode) const {
    PolicyObjectiveOptions out;
    out.policy_loss = mode;
    out.policy.clip = {golden_["low"], golden_["high"], golden_["dual"]};
    out.policy.tau_positive = golden_["tau_pos"];
    out.policy.tau_negative = golden_["tau_neg"];
    return out;
  }

  nlohmann::json golden_;
  TrainingBatch batch_;
  at::Tensor logprobs_;
};

TEST_F(PolicyObjectiveGolden, HasPyTorchsValueAndGradientInEveryMode) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  for (const NamedMode& mode : kModes) {
    const nlohmann::json& expected = golden_["modes"][mode.name];
    for (const NamedAggregation& aggregation : kAggregations) {
      for (const bool weighted : {false, true}) {
        const std::string name = std::string(aggregation.name) + (weighted ? "_weighted" : "");
        SCOPED_TRACE(std::string(mode.name) + " " + name);
        TrainingBatch batch = batch_;
        if (weighted) SetTokens(batch, &Sequence::importance_weights, golden_["weights"]);
        MiniBatchOptions split;
        split.aggregation = aggregation.mode;
        split.loss_scale = golden_["scale"];
        const MiniBatch mini_batch = SplitBatch(batch, split, mesh).front();
        ASSERT_EQ(mini_batch.micro_batches.size(), 1u);
        MicroBatchPlace place;
        place.num_tokens = mini_batch.num_tokens;
        place.num_sequences = mini_batch.num_sequences;
        const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
        UpdateStatistics statistics;

        const at::Tensor loss = PolicyObjective(Options(mode.mode))
                                    .Loss(mini_batch.micro_batches.front(),
                                          {leaf, at::zeros_like(leaf)}, place, statistics);

        const nlohmann::json& reference = expected["cases"][name];
        const auto value = reference["value"].get<double>();
        EXPECT_NEAR(loss.item<double>(), value,
                    kObjectiveTolerance * std::max(1.0, std::abs(value)));
        const at::Tensor gradient =
            torch::autograd::grad({loss}, {leaf})[0].to(at::kDouble).contiguous();
        ExpectNear({gradient.const_data_ptr<double>(),
                    gradient.const_data_ptr<double>() + gradient.numel()},
                   reference["grad"], kObjectiveTolerance, "gradient");
        EXPECT_NEAR(statistics.Get(Sum::kClipFraction), expected["clip_fraction"].get<double>(),
                    1e-6);
        EXPECT_NEAR(statistics.Get(Sum::kClipFractionLower),
                    expected["clip_fraction_lower"].get<double>(), 1e-6);
      }
    }
  }
}

TEST_F(PolicyObjectiveGolden, WithoutOldLogProbsIsThePolicyGradient) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  for (Sequence& sequence : batch_.sequences) sequence.old_logprobs.clear();
  const MiniBatch mini_batch = SplitBatch(batch_, {}, mesh).front();
  MicroBatchPlace place;
  place.num_tokens = mini_batch.num_tokens;
  place.num_sequences = mini_batch.num_sequences;
  for (const NamedMode& mode : {kModes[0], kModes[2]}) {  // those that token_mean concerns
    const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
    UpdateStatistics statistics;
    const at::Tensor loss = PolicyObjective(Options(mode.mode))
                                .Loss(mini_batch.micro_batches.front(),
                                      {leaf, at::zeros_like(leaf)}, place, statistics);
    const at::Tensor expected =
        -mini_batch.micro_batches.front().advantages / mini_batch.num_tokens;
    EXPECT_TRUE(at::allclose(torch::autograd::grad({loss}, {leaf})[0], expected, 1e-6, 1e-8))
        << mode.name;
  }
}

}  // namespace
}  // namespace tandem::trainer
