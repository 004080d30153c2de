// Distillation: advantages and losses from a teacher's log-probs.
#include "services/trainer/algorithm/teacher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

#include "common/config/load.h"
#include "services/trainer/algorithm/policy_objective.h"
#include "services/trainer/algorithm/training_step.h"
#include "services/trainer/optim/adamw.h"
#include "tests/fakes/local_mesh.h"
#include "tests/services/trainer/algorithm/step_test_support.h"

namespace tandem::trainer {
namespace {

using ::testing::ElementsAre;

// Two sequences, of three tokens and of one.
TrainingBatch TwoSequences() {
  TrainingBatch batch;
  batch.sequences.resize(2);
  Sequence& first = batch.sequences[0];
  first.token_ids = {4, 5, 6, 7};
  first.trained = {1, 2, 3};
  first.advantages = {0.5f, 0.5f, 0.5f};
  first.rollout_logprobs = {-1.0f, -2.0f, -0.5f};
  first.teacher_logprobs = {-0.5f, -3.0f, -0.5f};
  Sequence& second = batch.sequences[1];
  second.token_ids = {4, 8};
  second.trained = {1};
  second.advantages = {-1.0f};
  second.rollout_logprobs = {-4.0f};
  second.teacher_logprobs = {-1.0f};
  return batch;
}

TEST(TeacherAdvantages, AreTheReverseKlOfEachTokenAlone) {
  TrainingBatch batch = TwoSequences();
  AddTeacherAdvantages(batch, {.on_policy = true, .coef = 2.0});
  EXPECT_THAT(batch.sequences[0].advantages, ElementsAre(1.0f, -2.0f, 0.0f));
  EXPECT_THAT(batch.sequences[1].advantages, ElementsAre(6.0f));
}

TEST(TeacherAdvantages, StandBesideThoseOfRewards) {
  TrainingBatch batch = TwoSequences();
  AddTeacherAdvantages(batch, {.on_policy = true, .coef = 0.5, .reward_coef = 4.0});
  EXPECT_THAT(batch.sequences[0].advantages, ElementsAre(2.25f, 1.5f, 2.0f));
  EXPECT_THAT(batch.sequences[1].advantages, ElementsAre(-2.5f));
}

TEST(TeacherAdvantages, AreThoseOfRewardsAloneIfTheTeacherIsInTheLoss) {
  TrainingBatch batch = TwoSequences();
  batch.sequences[1].rollout_logprobs = {std::numeric_limits<float>::quiet_NaN()};
  AddTeacherAdvantages(batch, {.on_policy = true, .in_advantages = false, .reward_coef = 3.0});
  EXPECT_THAT(batch.sequences[0].advantages, ElementsAre(1.5f, 1.5f, 1.5f));
  EXPECT_THAT(batch.sequences[1].advantages, ElementsAre(-3.0f));
}

TEST(TeacherKl, IsTheMeanOverTokensThatStateTheRolloutsLogProbs) {
  TrainingBatch batch = TwoSequences();
  Metrics metrics;
  AddTeacherKl(batch, metrics);
  EXPECT_DOUBLE_EQ(metrics.at("actor/teacher_kl"), (-0.5 + 1.0 + 0.0 - 3.0) / 4);
  batch.sequences[1].rollout_logprobs = {std::numeric_limits<float>::quiet_NaN()};
  AddTeacherKl(batch, metrics);
  EXPECT_DOUBLE_EQ(metrics.at("actor/teacher_kl"), 0.5 / 3);
}

TEST(TeacherSums, AreThoseOfTheProbabilities) {
  const at::Tensor probs = at::tensor({0.5f, 0.25f, 0.0f, 1.0f}).view({2, 2});
  const TeacherSums sums = SumTeacher(probs, at::tensor({2.0f, 3.0f}));
  EXPECT_NEAR(sums.entropy, 2 * (0.5 * std::log(0.5) + 0.25 * std::log(0.25)), 1e-12);
  EXPECT_DOUBLE_EQ(sums.mass, 2 * 0.75 + 3 * 1.0);
}

// The gradient of an advantage A(token) = log p_teacher - log p_student, over all tokens weighted with
// their probabilities, is that of -KL(student || teacher): so the mean over samples is unbiased.
TEST(TeacherAdvantages, HaveTheGradientOfTheReverseKl) {
  at::manual_seed(1);
  const at::Tensor logits = at::randn({7}, at::kDouble).requires_grad_();
  const at::Tensor teacher = at::randn({7}, at::kDouble).log_softmax(0);
  const at::Tensor log_q = logits.log_softmax(0);
  const at::Tensor kl = (log_q.exp() * (log_q - teacher)).sum();
  const at::Tensor expected = torch::autograd::grad({kl}, {logits}, {}, true)[0];

  const PolicyObjective objective(PolicyObjectiveOptions{});
  at::Tensor sum = at::zeros({7}, at::kDouble);
  for (int64_t token = 0; token < 7; ++token) {
    TrainingBatch batch;
    Sequence& sequence = batch.sequences.emplace_back();
    sequence.token_ids = {0, token};
    sequence.trained = {1};
    sequence.advantages = {0.0f};
    sequence.rollout_logprobs = {static_cast<float>(log_q[token].item<double>())};
    sequence.teacher_logprobs = {static_cast<float>(teacher[token].item<double>())};
    AddTeacherAdvantages(batch, {.on_policy = true});
    const MicroBatch micro_batch = PackMicroBatch(batch, {0}, {1.0});
    UpdateStatistics statistics;
    DeferredValues later;
    const MicroBatchPlace place{.num_tokens = 1, .num_sequences = 1};
    const at::Tensor loss =
        objective.Loss(micro_batch, {log_q[token].view({1}), at::zeros({1}, at::kDouble), {}},
                       place, statistics, later);
    ASSERT_OK(later.Read());
    sum = sum + log_q[token].exp().detach() *
                    torch::autograd::grad({loss}, {logits}, {}, /*retain_graph=*/true)[0];
  }
  EXPECT_LT((sum - expected).abs().max().item<double>(), 1e-6);  // log-probs are float32
}

TEST(TeacherLoss, AddsTheEstimateOfTheDivergenceWithItsGradient) {
  for (const KlEstimator estimator : {KlEstimator::kK2, KlEstimator::kK3, KlEstimator::kK1Plus}) {
    const TrainingBatch batch = TwoSequences();
    const MicroBatch micro_batch = PackMicroBatch(batch, {0, 1}, {0.25, 0.5});
    const at::Tensor logprobs =
        at::tensor({-0.75, -1.0, -0.25, -2.0}, at::kDouble).requires_grad_();
    const at::Tensor weights = at::tensor({0.25, 0.25, 0.25, 0.5}, at::kDouble);
    const at::Tensor teacher = at::tensor({-0.5, -3.0, -0.5, -1.0}, at::kDouble);
    const model::LogProbs out = {logprobs, at::zeros({4}, at::kDouble), {}};
    const MicroBatchPlace place{.num_tokens = 4, .num_sequences = 2};
    const auto loss_of = [&](double coef, UpdateStatistics& statistics) {
      PolicyObjectiveOptions options;
      options.kl_estimator = estimator;
      options.teacher_loss_coef = coef;
      DeferredValues later;
      const at::Tensor loss =
          PolicyObjective(options).Loss(micro_batch, out, place, statistics, later);
      EXPECT_OK(later.Read());
      return loss;
    };
    UpdateStatistics with, without;
    const at::Tensor difference = loss_of(3.0, with) - loss_of(0.0, without);
    const at::Tensor expected = (KlLoss(logprobs, teacher, estimator) * weights).sum();
    EXPECT_NEAR(difference.item<double>(), 3.0 * expected.item<double>(), 1e-6);
    EXPECT_NEAR(with.Get(UpdateStatistics::kTeacherLoss), expected.item<double>(), 1e-6);
    EXPECT_EQ(without.Get(UpdateStatistics::kTeacherLoss), 0);
    const at::Tensor actual_gradient = torch::autograd::grad({difference}, {logprobs}, {}, true)[0];
    const at::Tensor gradient = torch::autograd::grad({3.0 * expected}, {logprobs})[0];
    EXPECT_LT((actual_gradient - gradient).abs().max().item<double>(), 1e-6);
  }
}

TEST(TeacherLoss, OfLikeliestTokensIsTheForwardKlOverThem) {
  TrainingBatch batch = TwoSequences();
  for (Sequence& sequence : batch.sequences) {
    sequence.num_teacher_top = 2;
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      sequence.teacher_top_ids.insert(sequence.teacher_top_ids.end(), {4, 5});
      sequence.teacher_top_logprobs.insert(sequence.teacher_top_logprobs.end(),
                                           {std::log(0.75f), std::log(0.125f)});
    }
  }
  MicroBatch micro_batch = PackMicroBatch(batch, {0, 1}, {0.25, 0.5});
  AddTeacherTargets(batch, {0, 1}, micro_batch);
  const at::Tensor log_q =
      at::tensor({-0.5, -2.0, -1.0, -1.0, -0.25, -3.0, -2.0, -0.5}, at::kDouble)
          .view({4, 2})
          .requires_grad_();
  const at::Tensor p = at::tensor({0.75, 0.125}, at::kDouble);
  const at::Tensor weights = at::tensor({0.25, 0.25, 0.25, 0.5}, at::kDouble);
  const model::LogProbs out = {.logprobs = at::full({4}, -1.0, at::kDouble),
                               .entropy = at::zeros({4}, at::kDouble),
                               .soft = (log_q * p).sum(1)};
  PolicyObjectiveOptions options;
  options.weights_kl = true;  // no ratio belongs to it
  options.teacher_loss_coef = 3.0;
  UpdateStatistics statistics;
  DeferredValues later;
  const MicroBatchPlace place{.num_tokens = 4, .num_sequences = 2};
  for (Sequence& sequence : batch.sequences) sequence.advantages.clear();
  micro_batch.advantages.zero_();
  const at::Tensor loss = PolicyObjective(options).Loss(micro_batch, out, place, statistics, later);
  ASSERT_OK(later.Read());
  const at::Tensor expected = ((p * (p.log() - log_q)).sum(1) * weights).sum();
  EXPECT_NEAR(loss.item<double>(), 3.0 * expected.item<double>(), 1e-6);
  EXPECT_NEAR(statistics.Get(UpdateStatistics::kTeacherLoss), expected.item<double>(), 1e-6);
  EXPECT_NEAR(statistics.Get(UpdateStatistics::kTeacherMass), 0.875 * 1.25, 1e-6);
  const at::Tensor gradient = torch::autograd::grad({loss}, {log_q})[0];
  const at::Tensor expected_gradient = -3.0 * weights.unsqueeze(1) * p;
  EXPECT_LT((gradient - expected_gradient).abs().max().item<double>(), 1e-6);
}

TEST(TeacherConfig, SelectsAdvantageLossOrSupervision) {
  const auto options_of = [](const std::vector<std::string>& set) {
    const auto config = config::LoadRunConfig({}, set);
    EXPECT_OK(config.status());
    return MakeTrainingStepOptions(*config);
  };
  const TrainingStepOptions none = options_of({});
  EXPECT_FALSE(none.teacher.on_policy);
  EXPECT_EQ(none.objective.teacher_loss_coef, 0);
  EXPECT_FALSE(none.needs_rollout_logprobs());
  const TrainingStepOptions advantage =
      options_of({"teacher.path=t", "teacher.coef=0.5", "teacher.reward_coef=2"});
  EXPECT_TRUE(advantage.teacher.on_policy);
  EXPECT_TRUE(advantage.teacher.in_advantages);
  EXPECT_EQ(advantage.teacher.coef, 0.5);
  EXPECT_EQ(advantage.teacher.reward_coef, 2);
  EXPECT_EQ(advantage.objective.teacher_loss_coef, 0);
  EXPECT_TRUE(advantage.needs_rollout_logprobs());
  const TrainingStepOptions loss =
      options_of({"teacher.endpoint=h:1", "teacher.mode=loss", "teacher.coef=0.5"});
  EXPECT_FALSE(loss.teacher.in_advantages);
  EXPECT_EQ(loss.objective.teacher_loss_coef, 0.5);
  EXPECT_FALSE(loss.needs_rollout_logprobs());
  const TrainingStepOptions top = options_of({"teacher.path=t", "teacher.top_k=8"});
  EXPECT_FALSE(top.teacher.on_policy);
  EXPECT_EQ(top.teacher.top_k, 8);
  EXPECT_EQ(top.mini_batch.teacher_targets, TeacherTargets::kNone);
  const TrainingStepOptions both =
      options_of({"teacher.path=t", "teacher.top_k=8", "teacher.mode=loss"});
  EXPECT_TRUE(both.teacher.on_policy);
  EXPECT_EQ(both.objective.teacher_loss_coef, 1);
  EXPECT_EQ(both.mini_batch.teacher_targets, TeacherTargets::kBeside);
}

// Runs `body` with a policy and its optimizer on each of `ranks` ranks.
template <typename Body>
void OnRanks(int ranks, const TrainingStepOptions& options, const Body& body) {
  testing::LocalMesh world({.dp_shard = ranks});
  world.Run([&](const comm::DeviceMesh& mesh) {
    const std::unique_ptr<ShardedModel> policy = MakeModel(mesh, 5);
    AdamW optimizer({}, *policy, mesh);
    TrainingStep step(options, *policy, nullptr, optimizer, mesh);
    body(step, mesh);
  });
}

TEST(TeacherStep, LearnsFromTheTeacherAloneWhateverTheRewards) {
  TrainingStepOptions options;
  options.teacher.on_policy = true;
  std::vector<Metrics> steps;
  for (const double reward : {0.0, 1.0}) {
    OnRanks(1, options, [&](TrainingStep& step, const comm::DeviceMesh&) {
      TrainingBatch batch = RaggedBatch(2);
      for (size_t i = 0; i < batch.sequences.size(); ++i) {
        Sequence& sequence = batch.sequences[i];
        sequence.reward = i % 2 == 0 ? reward : 0;
        sequence.teacher_logprobs.assign(sequence.trained.size(), -3.5f);
      }
      ASSERT_OK_AND_ASSIGN(const StepResult result, step.PolicyGradient(batch, 1e-3));
      EXPECT_TRUE(result.weights_changed);
      steps.push_back(result.metrics);
    });
  }
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].at("actor/loss"), steps[1].at("actor/loss"));
  EXPECT_EQ(steps[0].at("actor/grad_norm"), steps[1].at("actor/grad_norm"));
  EXPECT_LT(steps[0].at("critic/score/mean"), steps[1].at("critic/score/mean"));
  // RaggedBatch(): -4.3 to -4.
  EXPECT_GT(steps[0].at("actor/teacher_kl"), -0.8);
  EXPECT_LT(steps[0].at("actor/teacher_kl"), -0.5);
}

// Sequences whose every token has `top` of a teacher's ids, at log-prob `logprob` each.
TrainingBatch WithTop(TrainingBatch batch, int64_t top, float logprob) {
  for (Sequence& sequence : batch.sequences) {
    sequence.num_teacher_top = top;
    for (const int64_t position : sequence.trained) {
      for (int64_t k = 0; k < top; ++k) {
        sequence.teacher_top_ids.push_back((sequence.token_ids[position] + k) %
                                           SmallSpec().vocab_size);
        sequence.teacher_top_logprobs.push_back(logprob);
      }
    }
  }
  return batch;
}

TEST(TeacherStep, TopOneOfProbabilityOneIsPlainSupervision) {
  TrainingStepOptions distils;
  distils.teacher.top_k = 1;
  std::vector<Metrics> steps;
  for (const TrainingStepOptions& options : {TrainingStepOptions{}, distils}) {
    OnRanks(1, options, [&](TrainingStep& step, const comm::DeviceMesh&) {
      ASSERT_OK_AND_ASSIGN(const StepResult result,
                           step.Supervised(WithTop(RaggedBatch(3), 1, 0.0f), 1e-3));
      steps.push_back(result.metrics);
    });
  }
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_NEAR(steps[0].at("train/loss"), steps[1].at("train/loss"), 1e-6);
  EXPECT_NEAR(steps[0].at("actor/grad_norm"), steps[1].at("actor/grad_norm"), 1e-5);
  EXPECT_EQ(steps[0].count("train/teacher_mass"), 0u);
  EXPECT_NEAR(steps[1].at("train/teacher_mass"), 1.0, 1e-6);
}

// On-policy the loss is the supervised one, and the sampled tokens are still compared.
TEST(TeacherStep, TopKOnPolicyHasTheGradientOfSupervision) {
  TrainingStepOptions supervised;
  supervised.teacher.top_k = 4;
  TrainingStepOptions on_policy = supervised;
  on_policy.teacher.on_policy = true;
  on_policy.teacher.in_advantages = false;
  on_policy.objective.teacher_loss_coef = 1.0;
  on_policy.mini_batch.teacher_targets = TeacherTargets::kBeside;
  for (const int ranks : {1, 2}) {
    Metrics expected, actual;
    const auto batch_of = [] {
      TrainingBatch batch = WithTop(RaggedBatch(2), 4, std::log(0.2f));
      for (Sequence& sequence : batch.sequences) {
        sequence.teacher_logprobs.assign(sequence.trained.size(), -3.5f);
      }
      return batch;
    };
    OnRanks(ranks, supervised, [&](TrainingStep& step, const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(const StepResult result, step.Supervised(batch_of(), 1e-3));
      if (mesh.rank() == 0) expected = result.metrics;
    });
    OnRanks(ranks, on_policy, [&](TrainingStep& step, const comm::DeviceMesh& mesh) {
      ASSERT_OK_AND_ASSIGN(const StepResult result, step.PolicyGradient(batch_of(), 1e-3));
      if (mesh.rank() == 0) actual = result.metrics;
    });
    EXPECT_NEAR(actual.at("actor/teacher_loss"), expected.at("train/loss"), 2e-5) << ranks;
    EXPECT_NEAR(actual.at("actor/grad_norm"), expected.at("actor/grad_norm"), 2e-5) << ranks;
    EXPECT_NEAR(actual.at("actor/teacher_mass"), 0.8, 1e-5);
    EXPECT_GT(actual.at("actor/entropy"), 0.5);
    EXPECT_EQ(actual.count("training/rollout_probs_diff_max"), 1u);
  }
}

TEST(TeacherStep, TopKIsTheSameOnAnyRanks) {
  TrainingStepOptions options;
  options.teacher.top_k = 4;
  std::vector<std::vector<double>> losses;
  for (const auto& [ranks, max_tokens] :
       std::vector<std::pair<int, int64_t>>{{1, 4096}, {1, 25}, {2, 30}}) {
    options.mini_batch.max_tokens_per_micro_batch = max_tokens;
    std::vector<double>& out = losses.emplace_back();
    OnRanks(ranks, options, [&](TrainingStep& step, const comm::DeviceMesh& mesh) {
      for (int i = 0; i < 3; ++i) {
        const TrainingBatch batch = WithTop(RaggedBatch(1), 4, std::log(0.2f));
        ASSERT_OK_AND_ASSIGN(const StepResult result, step.Supervised(batch, 1e-3));
        if (mesh.rank() != 0) continue;
        out.push_back(result.metrics.at("train/loss"));
        EXPECT_NEAR(result.metrics.at("train/teacher_mass"), 0.8, 1e-5);
      }
    });
  }
  ASSERT_EQ(losses[0].size(), 3u);
  for (size_t i = 1; i < losses.size(); ++i) {
    ASSERT_EQ(losses[i].size(), 3u);
    for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(losses[i][k], losses[0][k], 2e-5) << i << ", " << k;
  }
  EXPECT_LT(losses[0][2], losses[0][0]);
}

}  // namespace
}  // namespace tandem::trainer
