#include "services/trainer/algorithm/advantages.h"

#include <gtest/gtest.h>

#include <cmath>

#include "services/trainer/algorithm/grpo_advantages.h"
#include "tests/services/trainer/algorithm/golden.h"

namespace tandem::trainer {
namespace {

class AdvantagesGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    golden_ = ReadGolden()["advantages"];
    rewards_ = golden_["rewards"].get<std::vector<double>>();
    groups_ = golden_["groups"].get<std::vector<int64_t>>();
  }

  nlohmann::json golden_;
  std::vector<double> rewards_;
  std::vector<int64_t> groups_;
};

TEST(Advantages, EveryEstimatorOfTheConfigurationIsComputed) {
  for (int i = config::v1::AdvEstimator_MIN + 1; i <= config::v1::AdvEstimator_MAX; ++i) {
    const auto estimator = static_cast<config::v1::AdvEstimator>(i);
    EXPECT_NE(FindAdvantages(estimator), nullptr) << config::v1::AdvEstimator_Name(estimator);
  }
  EXPECT_EQ(FindAdvantages(config::v1::ADV_ESTIMATOR_UNSPECIFIED), nullptr);
}

TEST_F(AdvantagesGolden, AreDividedByTheUnbiasedDeviationOfTheGroup) {
  const auto actual = GrpoAdvantages(rewards_, groups_, 4, /*divide_by_std=*/true);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], golden_["divided"][i].get<double>(), 1e-12) << "sample " << i;
  }
}

TEST_F(AdvantagesGolden, AreOnlyCentredForDrGrpo) {
  const auto actual = GrpoAdvantages(rewards_, groups_, 4, /*divide_by_std=*/false);
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], golden_["centred"][i].get<double>(), 1e-12) << "sample " << i;
  }
}

TEST(Advantages, OfAGroupOfOneAreItsReward) {
  const auto actual = GrpoAdvantages({2.5}, {0}, 1, /*divide_by_std=*/true);
  EXPECT_NEAR(actual[0], 2.5, 1e-5);
}

TEST(Advantages, OfTokensWithRewardsOfTheirOwnAreTheirReturns) {
  TrainingBatch batch;
  batch.num_groups = 1;
  Sequence& sequence = batch.sequences.emplace_back();
  sequence.trained = {1, 2, 3};
  sequence.reward = 7;
  sequence.token_rewards = {1, 2, 0};  // the rest, 4, is on the last token
  sequence.values = {0, 0, 0};
  SpreadRewards(batch);

  TrainingBatch with_greedy = batch;
  with_greedy.sequences[0].baseline_reward = 3;
  AssignAdvantages(with_greedy, {.kind = &kRemaxAdvantages});
  EXPECT_EQ(with_greedy.sequences[0].advantages, std::vector<float>({4, 3, 1}));

  AdvantageOptions gae = {.kind = &kGaeAdvantages, .gamma = 0.5};
  AssignAdvantages(batch, gae);
  EXPECT_EQ(batch.sequences[0].returns, std::vector<float>({3, 4, 4}));
}

TEST(Advantages, OfGroupEstimatorsUseTheSumOfTokenRewards) {
  TrainingBatch batch;
  batch.num_groups = 1;
  for (const double reward : {3.0, 1.0}) {
    Sequence& sequence = batch.sequences.emplace_back();
    sequence.trained = {1, 2};
    sequence.reward = reward;
  }
  batch.sequences[0].token_rewards = {2, 1};
  SpreadRewards(batch);

  AssignAdvantages(batch, {.kind = &kRlooAdvantages});

  EXPECT_EQ(batch.sequences[0].advantages, std::vector<float>({2, 2}));
  EXPECT_EQ(batch.sequences[1].advantages, std::vector<float>({-2, -2}));
}

TEST(Advantages, OfTokensAreComparedByPositionInTheCompletionOrAmongTrainedTokens) {
  TrainingBatch batch;
  batch.num_groups = 1;
  batch.sequences.resize(2);
  // A prompt of 2; the first completion has an environment's token between its two turns.
  batch.sequences[0].trained = {2, 4};
  batch.sequences[0].reward = 4;
  batch.sequences[1].trained = {2, 3};
  batch.sequences[1].reward = 1;
  for (Sequence& sequence : batch.sequences) {
    sequence.prompt_tokens = 2;
    sequence.old_logprobs = {-std::log(2.0f), -std::log(2.0f)};
    sequence.sum_pi_squared = {0.5f, 0.5f};  // terms of 1 - 2 / 2 + 1 / 2
  }
  batch.sequences[0].importance_weights = {2, 0};  // weights 2, 2 against 0.5, 1
  SpreadRewards(batch);

  TrainingBatch of_trained = batch;
  AssignAdvantages(of_trained, {.kind = &kTirOptimalTokenBaselineAdvantages});
  EXPECT_NEAR(of_trained.sequences[0].advantages[0], 4 - (2 * 4 + 0.5) / 2.5, 1e-6);
  EXPECT_NEAR(of_trained.sequences[0].advantages[1], 4 - (2 * 4 + 1.0) / 3, 1e-6);
  EXPECT_NEAR(of_trained.sequences[1].advantages[1], 1 - (2 * 4 + 1.0) / 3, 1e-6);

  AssignAdvantages(batch, {.kind = &kOptimalTokenBaselineAdvantages});
  EXPECT_NEAR(batch.sequences[0].advantages[0], 4 - (2 * 4 + 0.5) / 2.5, 1e-6);
  // Position 2, where only the longest completion has a token, has no baseline.
  EXPECT_NEAR(batch.sequences[0].advantages[1], 4, 1e-6);
  EXPECT_NEAR(batch.sequences[1].advantages[1], 0, 1e-6);  // alone at position 1
}

TEST(Advantages, ThatCameWithASampleStayAndItsRewardCountsInTheGroup) {
  TrainingBatch batch;
  batch.num_groups = 1;
  batch.sequences.resize(2);
  batch.sequences[0].trained = {1, 2};
  batch.sequences[0].reward = 1.0;
  batch.sequences[1].trained = {1, 2};
  batch.sequences[1].reward = 0.0;
  batch.sequences[1].advantages = {0.25f, -4.0f};

  AssignAdvantages(batch, {.divide_by_std = false});

  EXPECT_EQ(batch.sequences[0].advantages, std::vector<float>({0.5f, 0.5f}));
  EXPECT_EQ(batch.sequences[1].advantages, std::vector<float>({0.25f, -4.0f}));
}

}  // namespace
}  // namespace tandem::trainer
