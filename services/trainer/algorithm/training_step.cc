#include "services/trainer/algorithm/training_step.h"

#include <ATen/ATen.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "common/device/upload.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/trainer/algorithm/batch_metrics.h"
#include "services/trainer/algorithm/deferred_values.h"
#include "services/trainer/algorithm/entropy_mask.h"
#include "services/trainer/algorithm/kl_reward.h"
#include "services/trainer/algorithm/nonfinite_loss.h"
#include "services/trainer/algorithm/phase_timer.h"
#include "services/trainer/algorithm/supervised_loss.h"
#include "services/trainer/algorithm/token_scores.h"
#include "services/trainer/data/shared_prefix.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Sum = UpdateStatistics::Sum;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens per second of one rank, as verl counts.
void AddThroughput(const TrainingBatch& batch, double seconds, int num_ranks, Metrics& metrics) {
  metrics["perf/throughput"] = static_cast<double>(batch.num_tokens()) / seconds / num_ranks;
}

// Adds the routers' losses in `updates` updates, and their part of the minimised loss.
void AddRouterLosses(const model::RouterLossFactors& factors, double updates, ShardedModel& policy,
                     const char* loss, Metrics& metrics) {
  if (!factors.any() || updates == 0) return;
  const model::RouterLosses::Values sums = policy.TakeRouterLosses();
  metrics["actor/router_aux_loss"] = sums.balance / updates;
  metrics["actor/router_z_loss"] = sums.z / updates;
  metrics[loss] += (factors.balance * sums.balance + factors.z * sums.z) / updates;
}

// Compares log-probs that every rank holds.
void AddProbDifferences(const TrainingBatch& batch, Metrics& metrics) {
  UpdateStatistics statistics;
  for (const Sequence& sequence : batch.sequences) {
    statistics.AddProbDifferences(at::tensor(sequence.old_logprobs, at::kFloat),
                                  at::tensor(sequence.rollout_logprobs, at::kFloat));
  }
  statistics.AddProbDifferenceMetrics(metrics);
}

// Their rewards stay, in their groups.
void MaskTruncated(TrainingBatch& batch) {
  for (Sequence& sequence : batch.sequences) {
    if (sequence.is_cut) KeepTokens(sequence, std::vector<bool>(sequence.trained.size(), false));
  }
}

absl::Status CheckTrainsOnTokens(const TrainingBatch& batch) {
  if (batch.num_trained_tokens() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the batch has no token to train on: sampled, not masked out, and not the first of its "
      "sample");
}

}  // namespace

TrainingStep::TrainingStep(TrainingStepOptions options, ShardedModel& policy,
                           ShardedModel* reference, Optimizer& optimizer,
                           const comm::DeviceMesh& mesh)
    : options_(std::move(options)),
      objective_(options_.objective),
      kl_controller_(options_.kl_controller),
      policy_(policy),
      reference_(reference),
      optimizer_(optimizer),
      mesh_(mesh),
      device_(policy.device()) {
  options_.mini_batch.groups_together = SharesPrefixes(device_, mesh_.sequence().size());
}

absl::StatusOr<StepResult> TrainingStep::Supervised(const TrainingBatch& batch,
                                                    double learning_rate) {
  RETURN_IF_ERROR(CheckTrainsOnTokens(batch));
  const Clock::time_point start = Clock::now();
  StepResult result;
  AddLengthMetrics(batch, result.metrics);
  UpdateStatistics statistics;
  Optimizer::StepResult update;
  {
    PhaseTimer timer(result.metrics, "timing_s/update_actor");
    MiniBatchOptions whole;
    whole.max_tokens_per_micro_batch = options_.mini_batch.max_tokens_per_micro_batch;
    whole.groups_together = options_.mini_batch.groups_together;
    if (options_.teacher.top_k > 0) whole.teacher_targets = TeacherTargets::kOnly;
    for (const MiniBatch& mini_batch : SplitBatch(batch, whole, mesh_)) {
      DeferredValues later;
      for (size_t m = 0; m < mini_batch.micro_batches.size(); ++m) {
        const MicroBatch& micro_batch = mini_batch.micro_batches[m];
        if (micro_batch.packed.soft_weights.defined()) {
          // The loss is the teacher's cross-entropy; with its entropy it is the forward KL.
          const TeacherSums sums =
              SumTeacher(micro_batch.packed.soft_weights, micro_batch.loss_weights);
          statistics.Add(Sum::kLoss, sums.entropy);
          statistics.Add(Sum::kTeacherMass, sums.mass);
        }
        const auto loss = [&](const model::LogProbs& out) {
          const at::Tensor& logprobs = out.soft.defined() ? out.soft : out.logprobs;
          const at::Tensor weights = device::Upload(micro_batch.loss_weights, logprobs.device());
          const at::Tensor sum = SupervisedLoss(logprobs, weights);
          later.AddSum(sum, [&micro_batch, &statistics, m,
                             logprobs = logprobs.detach()](double value) {
            if (!std::isfinite(value)) {
              LogNonFiniteLoss(micro_batch, 0, static_cast<int64_t>(m), {{"log-probs", logprobs}});
            }
            statistics.Add(Sum::kLoss, value);
          });
          return sum;
        };
        RETURN_IF_ERROR(policy_.QueueForwardBackward(micro_batch.packed, loss).status());
      }
      RETURN_IF_ERROR(later.Read());
      ASSIGN_OR_RETURN(update, UpdateWeights(learning_rate));
    }
    RETURN_IF_ERROR(statistics.Reduce(mesh_, device_));
  }
  if (update.skipped) result.skipped.push_back(update.cause);
  result.weights_changed = !update.skipped;
  result.metrics["train/loss"] = statistics.Get(Sum::kLoss);
  if (options_.teacher.top_k > 0) {
    result.metrics["train/teacher_mass"] = statistics.Get(Sum::kTeacherMass);
  }
  AddRouterLosses(options_.router_losses, 1.0, policy_, "train/loss", result.metrics);
  result.metrics["actor/grad_norm"] = update.grad_norm;
  result.metrics["actor/lr"] = learning_rate;
  result.metrics["actor/skipped_updates"] = static_cast<double>(result.skipped.size());
  AddThroughput(batch, SecondsSince(start), mesh_.size(), result.metrics);
  return result;
}

absl::StatusOr<StepResult> TrainingStep::PolicyGradient(TrainingBatch batch, double learning_rate,
                                                        const CriticTurn& turn) {
  RETURN_IF_ERROR(CheckTrainsOnTokens(batch));
  const Clock::time_point start = Clock::now();
  StepResult result;
  Metrics& metrics = result.metrics;
  AddLengthMetrics(batch, metrics);
  RETURN_IF_ERROR(ScoreBatch(batch, metrics));
  if (turn.critic != nullptr) {
    RETURN_IF_ERROR(turn.critic->Score(batch, metrics));
  }
  const bool compared = options_.needs_start_logprobs(batch.num_groups);
  {
    PhaseTimer timer(metrics, "timing_s/adv");
    AssessBatch(batch, metrics);
  }
  if (turn.critic != nullptr) {
    RETURN_IF_ERROR(turn.critic->Update(batch, turn.learning_rate, metrics, result.skipped));
  }
  if (turn.policy_waits) {
    AddThroughput(batch, SecondsSince(start), mesh_.size(), metrics);
    return result;
  }

  UpdateStatistics statistics;
  Updates updates;
  {
    PhaseTimer timer(metrics, "timing_s/update_actor");
    const std::vector<MiniBatch> mini_batches = SplitBatch(batch, options_.mini_batch, mesh_);
    ASSIGN_OR_RETURN(updates, UpdatePolicy(mini_batches, learning_rate, !compared, statistics));
    RETURN_IF_ERROR(statistics.Reduce(mesh_, device_));
  }
  result.weights_changed = updates.weights_changed();
  result.skipped.insert(result.skipped.end(), updates.skipped.begin(), updates.skipped.end());
  metrics["actor/loss"] = statistics.Get(Sum::kLoss);
  AddRouterLosses(options_.router_losses, static_cast<double>(updates.count), policy_, "actor/loss",
                  metrics);
  metrics["actor/pg_loss"] = statistics.Get(Sum::kPolicyLoss);
  metrics["actor/pg_clipfrac"] = statistics.Get(Sum::kClipFraction);
  metrics["actor/pg_clipfrac_lower"] = statistics.Get(Sum::kClipFractionLower);
  metrics["actor/ppo_kl"] = statistics.Get(Sum::kPolicyKl);
  metrics["actor/entropy"] = statistics.Get(Sum::kEntropy);
  if (options_.objective.use_kl_loss) {
    metrics["actor/kl_loss"] = statistics.Get(Sum::kKlLoss);
    metrics["actor/kl_coef"] = options_.objective.kl_loss_coef;
  }
  if (options_.objective.teacher_loss_coef != 0) {
    metrics["actor/teacher_loss"] = statistics.Get(Sum::kTeacherLoss);
    if (options_.teacher.top_k > 0) {
      metrics["actor/teacher_mass"] = statistics.Get(Sum::kTeacherMass);
    }
  }
  if (updates.count > 0) {
    metrics["actor/grad_norm"] = updates.grad_norm_sum / static_cast<double>(updates.count);
  }
  metrics["actor/lr"] = learning_rate;
  metrics["actor/skipped_updates"] = static_cast<double>(updates.skipped.size());
  if (!compared) statistics.AddProbDifferenceMetrics(metrics);
  AddThroughput(batch, SecondsSince(start), mesh_.size(), metrics);
  return result;
}

absl::StatusOr<std::vector<std::vector<float>>> TrainingStep::LogProbsOf(
    ShardedModel& model, const TrainingBatch& batch) const {
  return ScoreTokens(batch, mesh_, device_, options_.mini_batch.max_tokens_per_micro_batch,
                     [&model](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                       ASSIGN_OR_RETURN(const model::LogProbs out, model.Forward(packed));
                       return out.logprobs;
                     });
}

absl::StatusOr<std::vector<std::vector<float>>> TrainingStep::EntropiesOf(
    const TrainingBatch& batch) const {
  return ScoreTokens(batch, mesh_, device_, options_.mini_batch.max_tokens_per_micro_batch,
                     [this](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                       ASSIGN_OR_RETURN(const model::LogProbs out, policy_.Forward(packed));
                       return out.entropy;
                     });
}

absl::StatusOr<std::vector<std::vector<std::vector<float>>>> TrainingStep::LogProbsAndSquaresOf(
    const TrainingBatch& batch) const {
  return ScoreTokensBySeveral(
      batch, mesh_, device_, options_.mini_batch.max_tokens_per_micro_batch, /*num_scores=*/2,
      [this](const PackedBatch& packed) -> absl::StatusOr<std::vector<at::Tensor>> {
        ASSIGN_OR_RETURN(const model::LogProbs out, policy_.ForwardWithSquares(packed));
        return std::vector<at::Tensor>{out.logprobs, out.sum_pi_squared};
      });
}

absl::Status TrainingStep::ScoreBatch(TrainingBatch& batch, Metrics& metrics) {
  {
    PhaseTimer timer(metrics, "timing_s/old_log_prob");
    const bool needs_logprobs = options_.needs_start_logprobs(batch.num_groups);
    if (options_.needs_sum_pi_squared()) {
      ASSIGN_OR_RETURN(const auto scores, LogProbsAndSquaresOf(batch));
      for (size_t i = 0; i < batch.sequences.size(); ++i) {
        batch.sequences[i].sum_pi_squared = scores[1][i];
        if (needs_logprobs) batch.sequences[i].old_logprobs = scores[0][i];
      }
      if (needs_logprobs) AddProbDifferences(batch, metrics);
    } else if (needs_logprobs) {
      ASSIGN_OR_RETURN(const auto logprobs, LogProbsOf(policy_, batch));
      for (size_t i = 0; i < logprobs.size(); ++i) batch.sequences[i].old_logprobs = logprobs[i];
      AddProbDifferences(batch, metrics);
    }
    if (!needs_logprobs && options_.correction.bypass) {
      for (Sequence& sequence : batch.sequences) sequence.old_logprobs = sequence.rollout_logprobs;
    }
  }
  if (options_.top_entropy_share < 1.0) {
    PhaseTimer timer(metrics, "timing_s/entropy");
    ASSIGN_OR_RETURN(const auto entropies, EntropiesOf(batch));
    for (size_t i = 0; i < entropies.size(); ++i) batch.sequences[i].entropies = entropies[i];
  }
  if (options_.needs_reference()) {
    PhaseTimer timer(metrics, "timing_s/ref");
    ASSIGN_OR_RETURN(const auto logprobs, LogProbsOf(*reference_, batch));
    for (size_t i = 0; i < logprobs.size(); ++i) batch.sequences[i].ref_logprobs = logprobs[i];
  }
  return absl::OkStatus();
}

void TrainingStep::AssessBatch(TrainingBatch& batch, Metrics& metrics) {
  SpreadRewards(batch);
  if (options_.use_kl_in_reward) {
    const double coefficient = kl_controller_.coefficient();
    const double kl = PenalizeDivergence(batch, options_.kl_penalty, coefficient);
    kl_controller_.Update(kl, static_cast<int64_t>(batch.sequences.size()));
    metrics["actor/reward_kl_penalty"] = kl;
    metrics["actor/reward_kl_penalty_coeff"] = coefficient;
  }
  if (options_.needs_start_logprobs(batch.num_groups)) {
    CorrectRollout(batch, options_.correction, metrics);
  }
  if (options_.masks_truncated) MaskTruncated(batch);
  if (batch.num_trained_tokens() == 0) {
    telemetry::LogWarning(
        "this step trains on nothing: algorithm.rollout_correction.rollout_rs or "
        "algorithm.mask_truncated_completions leaves out every token",
        {{"samples", batch.sequences.size()}});
  }
  AssignAdvantages(batch, options_.advantages);
  if (options_.teacher.on_policy) {
    AddTeacherKl(batch, metrics);
    AddTeacherAdvantages(batch, options_.teacher);
  }
  const PolicyLossKind& loss = *options_.objective.policy_loss;
  if (loss.select != nullptr) loss.select(batch, options_.objective.policy);
  if (options_.top_entropy_share < 1.0) {
    metrics["actor/entropy_threshold"] = MaskLowEntropy(batch, options_.top_entropy_share);
  }
  AddRewardMetrics(batch, metrics);
}

absl::StatusOr<Optimizer::StepResult> TrainingStep::UpdateWeights(double learning_rate) {
  ASSIGN_OR_RETURN(Optimizer::StepResult update, optimizer_.Step(learning_rate));
  // A skipped update's tokens do not count either.
  RETURN_IF_ERROR(policy_.MoveCorrectionBiases(update.skipped ? 0.0 : options_.router_bias_rate));
  return update;
}

absl::StatusOr<TrainingStep::Updates> TrainingStep::UpdatePolicy(
    const std::vector<MiniBatch>& mini_batches, double learning_rate, bool compare_with_rollout,
    UpdateStatistics& statistics) {
  Updates out;
  MicroBatchPlace place;
  place.share =
      1.0 / static_cast<double>(mini_batches.size() * static_cast<size_t>(options_.epochs));
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    for (const MiniBatch& mini_batch : mini_batches) {
      place.update = out.count;
      place.num_tokens = mini_batch.num_tokens;
      place.num_sequences = mini_batch.num_sequences;
      place.compare_with_rollout = compare_with_rollout && out.count == 0;
      DeferredValues later;
      for (size_t m = 0; m < mini_batch.micro_batches.size(); ++m) {
        const MicroBatch& micro_batch = mini_batch.micro_batches[m];
        place.micro_batch = static_cast<int64_t>(m);
        const auto loss = [&](const model::LogProbs& out_of_model) {
          return objective_.Loss(micro_batch, out_of_model, place, statistics, later);
        };
        RETURN_IF_ERROR(policy_.QueueForwardBackward(micro_batch.packed, loss).status());
      }
      RETURN_IF_ERROR(later.Read());
      ASSIGN_OR_RETURN(const Optimizer::StepResult update, UpdateWeights(learning_rate));
      out.grad_norm_sum += update.grad_norm;
      if (update.skipped) out.skipped.push_back(update.cause);
      ++out.count;
    }
  }
  return out;
}

}  // namespace tandem::trainer
