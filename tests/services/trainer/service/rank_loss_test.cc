// The same data on one, two and three ranks and with different micro-batches: the same losses.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/services/trainer/service/trainer_processes.h"
#include "tests/services/trainer/service/trainer_test_support.h"
#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;

constexpr int kSteps = 5;

struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
};

Curve Train(const std::string& name, const config::v1::RunConfig& config, v1::Objective objective) {
  Curve out;
  auto trainer = TrainerProcesses::Start(MakeFolder(name), config);
  EXPECT_THAT(trainer, IsOk());
  if (!trainer.ok()) return out;
  TrainerClient client((*trainer)->address());
  for (int64_t step = 1; step <= kSteps; ++step) {
    auto response = client.TrainStep(step, objective, RandomSamples(4, 4, 100 + step));
    EXPECT_THAT(response, IsOk());
    if (!response.ok()) return out;
    const auto& metrics = response->metrics();
    out.losses.push_back(
        metrics.at(objective == v1::OBJECTIVE_SUPERVISED ? "train/loss" : "actor/loss"));
    out.grad_norms.push_back(metrics.at("actor/grad_norm"));
  }
  EXPECT_TRUE((*trainer)->StopInOrder());
  return out;
}

void ExpectSameCurve(const Curve& actual, const Curve& expected, const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size()) << what;
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-5 * std::abs(expected.losses[i]) + 1e-7)
        << what << ", step " << i + 1;
    EXPECT_NEAR(actual.grad_norms[i], expected.grad_norms[i], 1e-4 * expected.grad_norms[i])
        << what << ", step " << i + 1;
  }
}

TEST(RankLoss, OfSupervisedStepsIsTheSameOnOneTwoAndThreeRanks) {
  config::v1::RunConfig config = TinyConfig(MakeFolder("supervised"));
  config.mutable_actor()->mutable_optim()->set_lr(1e-3);
  const Curve one = Train("supervised-1", config, v1::OBJECTIVE_SUPERVISED);
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
  config.mutable_trainer()->set_ranks(2);
  config.mutable_trainer()->set_max_tokens_per_micro_batch(40);
  ExpectSameCurve(Train("supervised-2", config, v1::OBJECTIVE_SUPERVISED), one, "2 ranks");
  config.mutable_trainer()->set_ranks(3);
  config.mutable_trainer()->set_max_tokens_per_micro_batch(4096);
  ExpectSameCurve(Train("supervised-3", config, v1::OBJECTIVE_SUPERVISED), one, "3 ranks");
}

TEST(RankLoss, OfThePolicyGradientWithKlAndMiniBatchesIsTheSameOnOneAndThreeRanks) {
  config::v1::RunConfig config = TinyConfig(MakeFolder("policy"));
  config.mutable_actor()->mutable_optim()->set_lr(1e-3);
  config.mutable_actor()->set_use_kl_loss(true);
  config.mutable_actor()->set_kl_loss_coef(0.1);
  config.mutable_actor()->set_entropy_coeff(0.01);
  config.mutable_actor()->set_ppo_mini_batch_size(2);
  config.mutable_actor()->set_ppo_epochs(2);
  config.mutable_actor()->set_loss_agg_mode(config::v1::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_MEAN);
  const Curve one = Train("policy-1", config, v1::OBJECTIVE_POLICY_GRADIENT);
  ASSERT_EQ(one.losses.size(), static_cast<size_t>(kSteps));
  config.mutable_trainer()->set_ranks(3);
  config.mutable_trainer()->set_max_tokens_per_micro_batch(50);
  ExpectSameCurve(Train("policy-3", config, v1::OBJECTIVE_POLICY_GRADIENT), one, "3 ranks");
}

}  // namespace
}  // namespace tandem::trainer
