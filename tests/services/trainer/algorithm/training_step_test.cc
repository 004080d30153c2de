// Whole steps: the same whatever the ranks, and what becomes of bad numbers.
#include "services/trainer/algorithm/training_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/algorithm/step_test_support.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

// Policy, reference and optimizer of one rank, on which steps are done.
struct Trainer {
  Trainer(const comm::DeviceMesh& mesh, const TrainingStepOptions& options)
      : policy(MakeModel(mesh, 5)),
        reference(MakeModel(mesh, 6, /*trainable=*/false)),
        optimizer({}, *policy, mesh),
        step(options, *policy, reference.get(), optimizer, mesh) {}

  std::unique_ptr<ShardedModel> policy, reference;
  AdamW optimizer;
  TrainingStep step;
};

// On one rank.
template <typename Body>
void WithTrainer(const TrainingStepOptions& options, const Body& body) {
  testing::LocalMesh world({.dp_shard = 1});
  world.Run([&](const comm::DeviceMesh& mesh) {
    Trainer trainer(mesh, options);
    body(trainer);
  });
}

// Three steps' metrics of the first rank.
std::vector<Metrics> ThreeSteps(TrainingStepOptions options, int ranks, int64_t max_tokens) {
  options.mini_batch.max_tokens_per_micro_batch = max_tokens;
  std::vector<Metrics> out;
  testing::LocalMesh world({.dp_shard = ranks});
  world.Run([&](const comm::DeviceMesh& mesh) {
    Trainer trainer(mesh, options);
    for (uint64_t step = 0; step < 3; ++step) {
      ASSERT_OK_AND_ASSIGN(const StepResult result,
                           trainer.step.PolicyGradient(RaggedBatch(step), 1e-3));
      EXPECT_TRUE(result.weights_changed);
      if (mesh.rank() == 0) out.push_back(result.metrics);
    }
  });
  return out;
}

void ExpectSameSteps(const TrainingStepOptions& options) {
  const std::vector<Metrics> expected = ThreeSteps(options, 1, 4096);
  ASSERT_EQ(expected.size(), 3u);
  for (const auto& [ranks, max_tokens] :
       std::vector<std::pair<int, int64_t>>{{1, 25}, {2, 30}, {3, 4096}}) {
    const std::vector<Metrics> actual = ThreeSteps(options, ranks, max_tokens);
    ASSERT_EQ(actual.size(), 3u);
    for (size_t step = 0; step < 3; ++step) {
      for (const auto& [name, value] : expected[step]) {
        if (name.rfind("timing_s/", 0) == 0 || name == "perf/throughput") continue;
        ASSERT_EQ(actual[step].count(name), 1u) << name;
        EXPECT_NEAR(actual[step].at(name), value, 2e-5 * std::abs(value) + 2e-6)
            << name << ", step " << step + 1 << ", " << ranks << " ranks";
      }
    }
  }
}

TEST(TrainingStep, WithWhitenedReturnsAndAdaptiveDivergenceIsTheSameOnAnyRanks) {
  TrainingStepOptions options;
  options.advantages = {&kReinforcePlusPlusAdvantages, true, 0.98, 1.0};
  options.use_kl_in_reward = true;
  options.kl_penalty = KlEstimator::kK3;
  options.kl_controller = {.adaptive = true, .coefficient = 0.1, .horizon = 100, .target = 0.01};
  ExpectSameSteps(options);
  const std::vector<Metrics> steps = ThreeSteps(options, 1, 4096);
  EXPECT_EQ(steps[0].at("actor/reward_kl_penalty_coeff"), 0.1);
  // 12 samples, far above the target: up by a fifth of 12 / 100.
  EXPECT_NEAR(steps[1].at("actor/reward_kl_penalty_coeff"), 0.1 * (1 + 0.2 * 0.12), 1e-9);
}

TEST(TrainingStep, WithGspoCorrectionAndMiniBatchesIsTheSameOnAnyRanks) {
  TrainingStepOptions options;
  options.objective.policy_loss = &kGspoLoss;
  options.objective.use_kl_loss = true;
  options.mini_batch.groups_each = 2;
  options.epochs = 2;
  options.correction.weights = {RolloutIs::kSequence, {0, 2.0, false}, true};
  ASSERT_OK_AND_ASSIGN(options.correction.rules,
                       config::ParseRejectionRules("token_k1,seq_mean_k3", "0.5_2.5,2"));
  ExpectSameSteps(options);
  const Metrics first = ThreeSteps(options, 1, 4096).front();
  EXPECT_GT(first.at("rollout_corr/rollout_rs_masked_fraction"), 0);
  EXPECT_LT(first.at("rollout_corr/rollout_rs_masked_fraction"), 1);
  EXPECT_EQ(first.count("rollout_corr/rollout_is_eff_sample_size"), 1u);
}

TEST(TrainingStep, WithTokensChosenByCovarianceAndEntropyIsTheSameOnAnyRanks) {
  TrainingStepOptions options;
  options.objective.policy_loss = &kKlCovLoss;
  options.objective.policy.kl_cov_ratio = 0.2;
  options.top_entropy_share = 0.5;
  options.mini_batch.groups_each = 2;
  ExpectSameSteps(options);
  const Metrics first = ThreeSteps(options, 1, 4096).front();
  EXPECT_GT(first.at("actor/entropy_threshold"), 0);
  EXPECT_GT(first.at("actor/pg_clipfrac"), 0);  // the chosen tokens
}

TEST(TrainingStep, RefusesABatchWithoutATokenToTrainOn) {
  WithTrainer({}, [](Trainer& trainer) {
    TrainingBatch batch = RaggedBatch(1);
    for (Sequence& sequence : batch.sequences) {
      KeepTokens(sequence, std::vector<bool>(sequence.trained.size(), false));
    }
    const auto refusal = StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("the batch has no token to train on"));
    EXPECT_THAT(trainer.step.PolicyGradient(batch, 1e-3).status(), refusal);
    EXPECT_THAT(trainer.step.Supervised(batch, 1e-3).status(), refusal);
  });
}

TEST(TrainingStep, ChangesNothingWhereEveryTokenIsRejected) {
  TrainingStepOptions options;
  ASSERT_OK_AND_ASSIGN(options.correction.rules, config::ParseRejectionRules("token_k2", "1e-9"));
  WithTrainer(options, [](Trainer& trainer) {
    const at::Tensor before = trainer.policy->shards()[0].master.clone();
    ASSERT_OK_AND_ASSIGN(const StepResult result,
                         trainer.step.PolicyGradient(RaggedBatch(1), 1e-3));
    EXPECT_FALSE(result.weights_changed);
    EXPECT_EQ(result.metrics.at("rollout_corr/rollout_rs_masked_fraction"), 1.0);
    EXPECT_TRUE(at::equal(trainer.policy->shards()[0].master, before));
  });
}

TEST(TrainingStep, DoesNotTrainOnTruncatedCompletionsIfTheyAreMasked) {
  TrainingStepOptions options;
  options.masks_truncated = true;
  WithTrainer(options, [](Trainer& trainer) {
    TrainingBatch batch = RaggedBatch(1);
    const at::Tensor before = trainer.policy->shards()[0].master.clone();
    for (Sequence& sequence : batch.sequences) sequence.is_cut = true;
    ASSERT_OK_AND_ASSIGN(const StepResult none, trainer.step.PolicyGradient(batch, 1e-3));
    EXPECT_FALSE(none.weights_changed);
    EXPECT_TRUE(at::equal(trainer.policy->shards()[0].master, before));
    EXPECT_EQ(none.metrics.count("critic/score/mean"), 1u);  // their rewards count

    batch.sequences[0].is_cut = false;
    ASSERT_OK_AND_ASSIGN(const StepResult one, trainer.step.PolicyGradient(batch, 1e-3));
    EXPECT_TRUE(one.weights_changed);
  });
}

TEST(TrainingStep, SkipsAndNamesAnUpdateWhoseLossIsNotFinite) {
  TrainingStepOptions options;
  options.mini_batch.groups_each = 2;
  WithTrainer(options, [](Trainer& trainer) {
    TrainingBatch batch = RaggedBatch(1);
    // Groups 2 and 3 are the second update.
    batch.sequences[9].advantages.assign(batch.sequences[9].trained.size(),
                                         std::numeric_limits<float>::infinity());
    ::testing::internal::CaptureStderr();

    const auto result = trainer.step.PolicyGradient(batch, 1e-3);

    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_OK(result.status());
    EXPECT_EQ(result->metrics.at("actor/skipped_updates"), 1);
    EXPECT_TRUE(result->weights_changed);  // by the first
    EXPECT_EQ(trainer.optimizer.num_steps(), 1);
    EXPECT_THAT(log, HasSubstr("the loss of a micro-batch is not finite"));
    EXPECT_THAT(log, HasSubstr("update=1 micro_batch=0 first_in=advantages sample=samples[9]"));
    EXPECT_THAT(result->skipped, ::testing::ElementsAre(HasSubstr("non-finite gradient")));
    for (const UnitShard& shard : trainer.policy->shards()) {
      EXPECT_TRUE(shard.master.isfinite().all().item<bool>());
    }
  });
}

TEST(TrainingStep, SkipsASupervisedUpdateOfABrokenModel) {
  WithTrainer({}, [](Trainer& trainer) {
    trainer.policy->shards()[0].master[0] = std::numeric_limits<float>::quiet_NaN();
    trainer.policy->MastersChanged();
    TrainingBatch batch = RaggedBatch(1);
    for (Sequence& sequence : batch.sequences) sequence.token_ids[0] = 0;  // the broken row
    ::testing::internal::CaptureStderr();

    const auto result = trainer.step.Supervised(batch, 1e-3);

    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_OK(result.status());
    EXPECT_FALSE(result->weights_changed);
    EXPECT_EQ(result->metrics.at("actor/skipped_updates"), 1);
    EXPECT_THAT(log, HasSubstr("first_in=log-probs sample=samples["));
  });
}

TEST(TrainingStep, KeepsTheCoefficientOfDivergenceAsState) {
  TrainingStepOptions options;
  options.use_kl_in_reward = true;
  options.kl_penalty = KlEstimator::kK3;
  options.kl_controller = {.adaptive = true, .coefficient = 0.1, .horizon = 100, .target = 0.01};
  WithTrainer(options, [](Trainer& trainer) {
    trainer.step.set_kl_coefficient(0.5);
    ASSERT_OK_AND_ASSIGN(const StepResult result,
                         trainer.step.PolicyGradient(RaggedBatch(1), 1e-3));
    EXPECT_EQ(result.metrics.at("actor/reward_kl_penalty_coeff"), 0.5);
    EXPECT_GT(trainer.step.kl_coefficient(), 0.5);
    EXPECT_LT(result.metrics.at("critic/rewards/mean"), result.metrics.at("critic/score/mean"));
  });
}

}  // namespace
}  // namespace tandem::trainer
