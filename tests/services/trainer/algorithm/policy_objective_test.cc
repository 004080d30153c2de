// The loss of a micro-batch, and its gradient with respect to log-probs, against PyTorch: every
// loss mode with every aggregation, with and without importance weights.
#include "services/trainer/algorithm/policy_objective.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "services/trainer/algorithm/entropy_mask.h"
#include "services/trainer/algorithm/token_covariance.h"
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
  ImportanceWeightOptions weights = {};
};
constexpr NamedMode kModes[] = {
    {"vanilla", &kVanillaLoss},
    {"gspo", &kGspoLoss},
    {"cispo", &kCispoLoss},
    {"sapo", &kSapoLoss},
    {"gmpo", &kGmpoLoss},
    {"gpg", &kGpgLoss},
    {"dppo_tv", &kDppoTvLoss},
    {"dppo_kl", &kDppoKlLoss},
    {"dro", &kDroLoss},
    {"reinforce", &kReinforceLoss},
    {"reinforce_token", &kReinforceLoss, {RolloutIs::kToken, {0.0, 2.0, false}}},
    {"reinforce_sequence", &kReinforceLoss, {RolloutIs::kSequence, {0.0, 2.0, false}}},
    {"reinforce_token_masked", &kReinforceLoss, {RolloutIs::kToken, {0.5, 1.5, true}}}};

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

  PolicyObjectiveOptions Options(const NamedMode& mode) const {
    PolicyObjectiveOptions out;
    out.policy_loss = mode.mode;
    out.policy.weights = mode.weights;
    out.policy.dro_beta = golden_["dro_beta"];
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
        DeferredValues later;

        const at::Tensor loss = PolicyObjective(Options(mode))
                                    .Loss(mini_batch.micro_batches.front(),
                                          {leaf, at::zeros_like(leaf)}, place, statistics, later);
        ASSERT_OK(later.Read());

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
  for (const NamedMode& mode :
       {kModes[0], kModes[2], kModes[5]}) {  // those that token_mean concerns
    const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
    UpdateStatistics statistics;
    DeferredValues later;
    const at::Tensor loss = PolicyObjective(Options(mode))
                                .Loss(mini_batch.micro_batches.front(),
                                      {leaf, at::zeros_like(leaf)}, place, statistics, later);
    const at::Tensor expected =
        -mini_batch.micro_batches.front().advantages / mini_batch.num_tokens;
    EXPECT_TRUE(at::allclose(torch::autograd::grad({loss}, {leaf})[0], expected, 1e-6, 1e-8))
        << mode.name;
  }
}

TEST_F(PolicyObjectiveGolden, KlCovHoldsTheTokensOfTheLargestCovariance) {
  const nlohmann::json& expected = golden_["covariance"];
  std::vector<double> covariances;
  for (const TokenCovariance& token : TokenCovariances(batch_)) covariances.push_back(token.value);
  ExpectNear(covariances, expected["values"], 1e-6, "covariance");
  PolicyObjectiveOptions options;
  options.policy_loss = &kKlCovLoss;
  options.policy.kl_cov_ratio = expected["ratio"];
  options.policy.kl_cov_coefficient = expected["coefficient"];
  kKlCovLoss.select(batch_, options.policy);
  ExpectNear(AllTokens(batch_, &Sequence::selected), expected["kl_selected"], 0, "selected");
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  const MiniBatch mini_batch = SplitBatch(batch_, {}, mesh).front();
  MicroBatchPlace place;
  place.num_tokens = mini_batch.num_tokens;
  place.num_sequences = mini_batch.num_sequences;
  const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
  UpdateStatistics statistics;
  DeferredValues later;

  const at::Tensor loss = PolicyObjective(options).Loss(
      mini_batch.micro_batches.front(), {leaf, at::zeros_like(leaf)}, place, statistics, later);

  const auto value = expected["kl_loss"].get<double>();
  EXPECT_NEAR(loss.item<double>(), value, kObjectiveTolerance * std::max(1.0, std::abs(value)));
  const at::Tensor gradient = torch::autograd::grad({loss}, {leaf})[0].to(at::kDouble).contiguous();
  ExpectNear(
      {gradient.const_data_ptr<double>(), gradient.const_data_ptr<double>() + gradient.numel()},
      expected["kl_grad"], kObjectiveTolerance, "gradient");
}

TEST_F(PolicyObjectiveGolden, ClipCovLeavesOutTokensOfTheRangeAndNoOthers) {
  PolicyLossOptions options;
  options.clip_cov_ratio = 0.1;  // three of 39
  options.clip_cov_low = 0.2;
  options.clip_cov_high = 2.0;

  kClipCovLoss.select(batch_, options);

  const std::vector<double> selected = AllTokens(batch_, &Sequence::selected);
  const std::vector<TokenCovariance> covariances = TokenCovariances(batch_);
  double num_selected = 0;
  for (size_t i = 0; i < selected.size(); ++i) {
    num_selected += selected[i];
    if (selected[i] == 0) continue;
    EXPECT_GT(covariances[i].value, 0.2);
    EXPECT_LT(covariances[i].value, 2.0);
  }
  EXPECT_EQ(num_selected, 3);
  TrainingBatch again = batch_;
  kClipCovLoss.select(again, options);  // on another rank
  EXPECT_EQ(AllTokens(again, &Sequence::selected), selected);
  const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
  const SequenceRows rows(at::zeros({leaf.numel()}, at::kLong), at::kCPU);
  const at::Tensor chosen = at::tensor(selected, at::kDouble).to(at::kFloat);
  const PolicyLoss loss = kClipCovLoss.compute(
      {leaf, at::zeros_like(leaf), at::ones_like(chosen), rows, chosen}, options);
  const at::Tensor gradient = torch::autograd::grad({loss.loss.sum()}, {leaf})[0];
  EXPECT_EQ((gradient * chosen).abs().max().item<float>(), 0);
}

TEST_F(PolicyObjectiveGolden, TokensOfLowEntropyHaveNoWeight) {
  const nlohmann::json& expected = golden_["covariance"];
  SetTokens(batch_, &Sequence::entropies, expected["entropies"]);
  EXPECT_NEAR(MaskLowEntropy(batch_, expected["share"].get<double>()),
              expected["threshold"].get<double>(), 1e-9);
  ExpectNear(AllTokens(batch_, &Sequence::importance_weights), expected["keep"], 0, "weights");
}

// On samples of an older policy, the divergence times the ratio has the gradient of k2 and more.
TEST_F(PolicyObjectiveGolden, TheKlLossMayBeWeightedByTheRatio) {
  testing::LocalWorld world(1);
  const auto group = world.Join(0);
  const comm::DeviceMesh mesh(*group);
  const nlohmann::json ref = ReadBatchGolden()["advantages"]["ref"];
  SetTokens(batch_, &Sequence::ref_logprobs, ref);
  for (Sequence& sequence : batch_.sequences) {
    sequence.advantages.assign(sequence.trained.size(), 0.0f);  // the KL loss alone
  }
  const MiniBatch mini_batch = SplitBatch(batch_, {}, mesh).front();
  const MicroBatch& micro_batch = mini_batch.micro_batches.front();
  MicroBatchPlace place;
  place.num_tokens = mini_batch.num_tokens;
  place.num_sequences = mini_batch.num_sequences;
  PolicyObjectiveOptions options;
  options.use_kl_loss = true;
  options.kl_loss_coef = 0.5;
  options.weights_kl = true;
  const at::Tensor leaf = logprobs_.clone().requires_grad_(true);
  UpdateStatistics statistics;
  DeferredValues later;

  const at::Tensor loss = PolicyObjective(options).Loss(micro_batch, {leaf, at::zeros_like(leaf)},
                                                        place, statistics, later);

  const at::Tensor wide = logprobs_.to(at::kDouble).requires_grad_(true);
  const at::Tensor ratio =
      (wide - micro_batch.old_logprobs.to(at::kDouble)).clamp(-20.0, 20.0).exp();
  const at::Tensor d = (wide - micro_batch.ref_logprobs.to(at::kDouble)).clamp(-20.0, 20.0);
  const at::Tensor k3 = ((-d).exp() + d - 1.0).clamp(-10.0, 10.0);
  const at::Tensor expected = 0.5 * (k3 * ratio).mean();
  EXPECT_NEAR(loss.item<double>() / expected.item<double>(), 1.0, 1e-5);
  const at::Tensor actual = torch::autograd::grad({loss}, {leaf})[0].to(at::kDouble);
  const at::Tensor gradient = torch::autograd::grad({expected}, {wide})[0];
  EXPECT_TRUE(at::allclose(actual, gradient, 1e-4, 1e-6));
}

}  // namespace
}  // namespace tandem::trainer
