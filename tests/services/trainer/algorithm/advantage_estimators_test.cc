// Every estimator of advantages, and divergence in rewards, against PyTorch.
#include <gtest/gtest.h>

#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/kl_reward.h"
#include "tests/services/trainer/algorithm/batch_golden.h"

namespace tandem::trainer {
namespace {

// Advantages are kept in float32.
constexpr double kTolerance = 1e-6;

struct Named {
  const char* name;
  const AdvantageKind* kind;
  bool divide_by_std = true;
};

constexpr Named kEstimators[] = {
    {"grpo", &kGrpoAdvantages},
    {"dr_grpo", &kGrpoAdvantages, false},
    {"rloo", &kRlooAdvantages},
    {"opo", &kOpoAdvantages},
    {"gpg", &kGpgAdvantages},
    {"remax", &kRemaxAdvantages},
    {"reinforce_plus_plus", &kReinforcePlusPlusAdvantages},
    {"reinforce_plus_plus_baseline", &kReinforcePlusPlusBaselineAdvantages},
    {"gae", &kGaeAdvantages},
    {"grpo_passk", &kPassAtKAdvantages},
    {"grpo_passk_centred", &kPassAtKAdvantages, false},
    {"gdpo", &kGdpoAdvantages},
    {"gdpo_centred", &kGdpoAdvantages, false},
    {"optimal_token_baseline", &kOptimalTokenBaselineAdvantages},
    {"optimal_token_baseline", &kTirOptimalTokenBaselineAdvantages},
};

class AdvantageEstimators : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = ReadBatchGolden();
    batch_ = GoldenBatch(golden_);
    SetTokens(batch_, &Sequence::old_logprobs, golden_["advantages"]["old"]);
    SetTokens(batch_, &Sequence::ref_logprobs, golden_["advantages"]["ref"]);
    SetTokens(batch_, &Sequence::sum_pi_squared, golden_["advantages"]["sum_pi_squared"]);
    SetTokens(batch_, &Sequence::values, golden_["advantages"]["values"]);
    SpreadRewards(batch_);
  }

  void ExpectAdvantages(const TrainingBatch& batch, const nlohmann::json& expected,
                        const std::string& what) {
    for (const Named& named : kEstimators) {
      TrainingBatch copy = batch;
      AssignAdvantages(copy, {named.kind, named.divide_by_std, expected["gamma"].get<double>(),
                              expected["lam"].get<double>()});
      ExpectNear(AllTokens(copy, &Sequence::advantages), expected[named.name], kTolerance,
                 what + named.name);
      if (named.kind != &kGaeAdvantages) continue;
      ExpectNear(AllTokens(copy, &Sequence::returns), expected["gae_returns"], kTolerance,
                 what + "returns");
    }
  }

  nlohmann::json golden_;
  TrainingBatch batch_;
};

TEST_F(AdvantageEstimators, AreThoseOfPyTorchOnARaggedBatch) {
  ExpectAdvantages(batch_, golden_["advantages"]["without_kl"], "");
}

TEST_F(AdvantageEstimators, AreThoseOfPyTorchWithDivergenceInTheRewards) {
  const std::vector<std::pair<const char*, KlEstimator>> kinds = {{"k1", KlEstimator::kK1},
                                                                  {"abs", KlEstimator::kAbs},
                                                                  {"k2", KlEstimator::kK2},
                                                                  {"k3", KlEstimator::kK3}};
  for (const auto& [name, estimator] : kinds) {
    const nlohmann::json& expected = golden_["advantages"]["with_kl"][name];
    TrainingBatch batch = batch_;

    const double kl =
        PenalizeDivergence(batch, estimator, golden_["advantages"]["coefficient"].get<double>());

    EXPECT_NEAR(kl, expected["mean"].get<double>(), 1e-10) << name;
    ExpectNear(AllTokens(batch, &Sequence::token_rewards), expected["token_rewards"], 1e-10, name);
    ExpectAdvantages(batch, expected["advantages"], std::string(name) + ", ");
  }
}

TEST_F(AdvantageEstimators, OfRejectedTokensPassTheirRewardOn) {
  Sequence& sequence = batch_.sequences[0];  // of four tokens
  sequence.token_rewards = {1, 2, 4, 8};

  KeepTokens(sequence, {false, true, true, false});

  EXPECT_EQ(sequence.trained, std::vector<int64_t>({2, 3}));
  EXPECT_EQ(sequence.token_rewards, std::vector<double>({3, 12}));
  EXPECT_EQ(sequence.old_logprobs.size(), 2u);
  EXPECT_EQ(sequence.values.size(), 2u);
}

TEST_F(AdvantageEstimators, OfAGroupWhoseTokensAreAllRejectedStillCountItsRewards) {
  KeepTokens(batch_.sequences[0], std::vector<bool>(4, false));

  AssignAdvantages(batch_, {&kRlooAdvantages});

  EXPECT_TRUE(batch_.sequences[0].advantages.empty());
  // Rewards 1, 0 and 0.5: 0 - mean(1, 0.5).
  EXPECT_FLOAT_EQ(batch_.sequences[1].advantages[0], -0.75f);
}

}  // namespace
}  // namespace tandem::trainer
