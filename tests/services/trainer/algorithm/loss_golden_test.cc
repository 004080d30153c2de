#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "services/trainer/algorithm/entropy_bonus.h"
#include "services/trainer/algorithm/kl_loss.h"
#include "services/trainer/algorithm/loss_aggregation.h"
#include "services/trainer/algorithm/policy_loss.h"
#include "services/trainer/algorithm/supervised_loss.h"
#include "tests/services/trainer/algorithm/golden.h"

namespace tandem::trainer {
namespace {

constexpr double kGoldenTolerance = 1e-12;

at::Tensor Gradient(const at::Tensor& loss, const at::Tensor& of) {
  return torch::autograd::grad({loss}, {of}, {}, /*retain_graph=*/true)[0];
}

at::Tensor Leaf(const nlohmann::json& values) { return Vector(values).requires_grad_(true); }

// The weight of each token, sequence by sequence.
at::Tensor Weights(LossAggregation mode, const std::vector<int64_t>& lengths, double scale) {
  const std::vector<double> of_sequence = TokenWeights(mode, lengths, scale);
  std::vector<double> of_token;
  for (size_t i = 0; i < lengths.size(); ++i)
    of_token.insert(of_token.end(), lengths[i], of_sequence[i]);
  return at::tensor(of_token, at::kDouble);
}

PolicyLoss Vanilla(const at::Tensor& logprobs, const nlohmann::json& golden) {
  const SequenceRows rows(at::zeros({logprobs.numel()}, at::kLong), at::kCPU);
  return kVanillaLoss.compute({logprobs, Vector(golden["old"]), Vector(golden["advantages"]), rows},
                              {.clip = {golden["low"], golden["high"], golden["dual"]}});
}

TEST(PolicyLoss, EveryModeOfTheConfigurationIsComputed) {
  for (int mode = config::v1::PolicyLossMode_MIN + 1; mode <= config::v1::PolicyLossMode_MAX;
       ++mode) {
    const auto named = static_cast<config::v1::PolicyLossMode>(mode);
    EXPECT_NE(FindPolicyLoss(named), nullptr) << config::v1::PolicyLossMode_Name(named);
  }
  EXPECT_EQ(FindPolicyLoss(config::v1::POLICY_LOSS_MODE_UNSPECIFIED), nullptr);
}

TEST(PolicyLoss, AndItsGradientAreThoseOfPyTorchForEveryBound) {
  const nlohmann::json all = ReadGolden();
  for (const nlohmann::json& golden : all["policy_loss"]) {
    const at::Tensor logprobs = Leaf(golden["logprobs"]);
    const PolicyLoss actual = Vanilla(logprobs, golden);

    EXPECT_LT(Difference(actual.loss, Vector(golden["loss"])), 1e-6);  // the largest is about e^20
    EXPECT_EQ(Difference(actual.clipped, Vector(golden["clipped"])), 0);
    EXPECT_EQ(Difference(actual.clipped_lower, Vector(golden["clipped_lower"])), 0);
    EXPECT_LT(Difference(actual.log_ratio, Vector(golden["log_ratio"])), kGoldenTolerance);
    EXPECT_LT(Difference(Gradient(actual.loss.sum(), logprobs), Vector(golden["grad"])),
              kGoldenTolerance);
  }
}

TEST(KlLoss, AndItsGradientAreThoseOfPyTorchForEveryEstimator) {
  const nlohmann::json golden = ReadGolden()["kl"];
  const std::vector<std::pair<const char*, KlEstimator>> estimators = {
      {"k1", KlEstimator::kK1},          {"abs", KlEstimator::kAbs},
      {"k2", KlEstimator::kK2},          {"k3", KlEstimator::kK3},
      {"k1_plus", KlEstimator::kK1Plus}, {"k3_plus", KlEstimator::kK3Plus}};
  for (const auto& [name, estimator] : estimators) {
    const at::Tensor logprobs = Leaf(golden["logprobs"]);
    const at::Tensor actual = KlLoss(logprobs, Vector(golden["ref"]), estimator);
    EXPECT_LT(Difference(actual, Vector(golden[name]["value"])), kGoldenTolerance) << name;
    EXPECT_LT(Difference(Gradient(actual.sum(), logprobs), Vector(golden[name]["grad"])),
              kGoldenTolerance)
        << name;
  }
}

TEST(LossAggregation, IsAWeightedSumInEveryMode) {
  const nlohmann::json golden = ReadGolden()["aggregation"];
  const auto lengths = golden["lengths"].get<std::vector<int64_t>>();
  const std::vector<std::pair<const char*, LossAggregation>> modes = {
      {"token_mean", LossAggregation::kTokenMean},
      {"token_sum", LossAggregation::kTokenSum},
      {"seq_mean_token_sum", LossAggregation::kSeqMeanTokenSum},
      {"seq_mean_token_mean", LossAggregation::kSeqMeanTokenMean},
      {"seq_mean_token_sum_norm", LossAggregation::kSeqMeanTokenSumNorm}};
  for (const auto& [name, mode] : modes) {
    const at::Tensor weights = Weights(mode, lengths, golden["scale"]);
    const nlohmann::json& expected = golden["modes"][name];
    EXPECT_NEAR((Vector(golden["losses"]) * weights).sum().item<double>(),
                expected["value"].get<double>(), kGoldenTolerance)
        << name;
    EXPECT_LT(Difference(weights, Vector(expected["grad"])), kGoldenTolerance) << name;
  }
}

class WholeLoss : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = ReadGolden()["whole"];
    logits_ = Matrix(golden_["logits"]).requires_grad_(true);
    const at::Tensor log_softmax = at::log_softmax(logits_, -1);
    const at::Tensor targets = Vector(golden_["targets"]).to(at::kLong);
    logprobs_ = log_softmax.gather(-1, targets.unsqueeze(-1)).squeeze(-1);
    entropy_ = -(log_softmax.exp() * log_softmax).sum(-1);
    lengths_ = golden_["lengths"].get<std::vector<int64_t>>();
  }

  nlohmann::json golden_;
  std::vector<int64_t> lengths_;
  at::Tensor logits_, logprobs_, entropy_;
};

TEST_F(WholeLoss, OfThePolicyWithKlAndEntropyHasPyTorchsGradient) {
  const at::Tensor weights = Weights(LossAggregation::kSeqMeanTokenMean, lengths_, 1.0);
  const PolicyLoss policy = Vanilla(logprobs_, golden_);
  const at::Tensor kl = KlLoss(logprobs_, Vector(golden_["ref"]), KlEstimator::kK3);

  const at::Tensor loss = (policy.loss * weights).sum() +
                          (kl * weights).sum() * golden_["kl_coef"].get<double>() +
                          EntropyBonus(entropy_, weights, golden_["entropy_coeff"]);

  EXPECT_NEAR((policy.loss * weights).sum().item<double>(), golden_["pg_loss"].get<double>(),
              kGoldenTolerance);
  EXPECT_NEAR(loss.item<double>(), golden_["loss"].get<double>(), kGoldenTolerance);
  EXPECT_LT(Difference(Gradient(loss, logits_), Matrix(golden_["grad"])), kGoldenTolerance);
}

TEST_F(WholeLoss, OfGivenTokensIsPyTorchsCrossEntropy) {
  const at::Tensor weights = Weights(LossAggregation::kTokenMean, lengths_, 1.0);
  const at::Tensor loss = SupervisedLoss(logprobs_, weights);
  EXPECT_NEAR(loss.item<double>(), golden_["supervised"].get<double>(), kGoldenTolerance);
  EXPECT_LT(Difference(Gradient(loss, logits_), Matrix(golden_["supervised_grad"])),
            kGoldenTolerance);
}

}  // namespace
}  // namespace tandem::trainer
