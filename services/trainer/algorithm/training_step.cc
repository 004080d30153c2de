#include "services/trainer/algorithm/training_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "common/status/status_macros.h"
#include "services/trainer/algorithm/advantages.h"
#include "services/trainer/algorithm/batch_metrics.h"
#include "services/trainer/algorithm/entropy_bonus.h"
#include "services/trainer/algorithm/supervised_loss.h"
#include "services/trainer/data/micro_batch_plan.h"

namespace tandem::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Sum = UpdateStatistics::Sum;

// Adds the time of its scope to a metric.
class PhaseTimer {
 public:
  PhaseTimer(Metrics& metrics, std::string name)
      : metrics_(metrics), name_(std::move(name)), start_(Clock::now()) {}
  ~PhaseTimer() { metrics_[name_] += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  Metrics& metrics_;
  const std::string name_;
  const Clock::time_point start_;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double WeightedSum(const at::Tensor& values, const at::Tensor& weights) {
  return (values.detach() * weights).sum(at::kDouble).item<double>();
}

double SumOf(const at::Tensor& values) { return values.detach().sum(at::kDouble).item<double>(); }

// Tokens per second of one rank, as verl counts.
void AddThroughput(const TrainingBatch& batch, double seconds, int num_ranks, Metrics& metrics) {
  metrics["perf/throughput"] = static_cast<double>(batch.num_tokens()) / seconds / num_ranks;
}

}  // namespace

TrainingStepOptions MakeTrainingStepOptions(const config::v1::RunConfig& config) {
  const config::v1::ActorConfig& actor = config.actor();
  TrainingStepOptions out;
  out.divide_advantages_by_std = config.algorithm().norm_adv_by_std_in_grpo();
  out.clip = {actor.clip_ratio_low(), actor.clip_ratio_high(), actor.clip_ratio_c()};
  switch (actor.loss_agg_mode()) {
    case config::v1::LOSS_AGG_MODE_TOKEN_SUM:
      out.aggregation = LossAggregation::kTokenSum;
      break;
    case config::v1::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_SUM:
      out.aggregation = LossAggregation::kSeqMeanTokenSum;
      break;
    case config::v1::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_MEAN:
      out.aggregation = LossAggregation::kSeqMeanTokenMean;
      break;
    case config::v1::LOSS_AGG_MODE_SEQ_MEAN_TOKEN_SUM_NORM:
      out.aggregation = LossAggregation::kSeqMeanTokenSumNorm;
      break;
    default:
      out.aggregation = LossAggregation::kTokenMean;
  }
  out.loss_scale = actor.loss_scale_factor() > 0
                       ? actor.loss_scale_factor()
                       : static_cast<double>(config.rollout().max_tokens());
  out.use_kl_loss = actor.use_kl_loss();
  out.kl_loss_coef = actor.kl_loss_coef();
  switch (actor.kl_loss_type()) {
    case config::v1::KL_LOSS_TYPE_K1:
      out.kl_estimator = KlEstimator::kK1;
      break;
    case config::v1::KL_LOSS_TYPE_K2:
      out.kl_estimator = KlEstimator::kK2;
      break;
    default:
      out.kl_estimator = KlEstimator::kK3;
  }
  out.entropy_coeff = actor.entropy_coeff();
  out.mini_batch_groups = actor.ppo_mini_batch_size();
  out.epochs = std::max<int64_t>(1, actor.ppo_epochs());
  out.rollout_logprobs_are_old = config.algorithm().rollout_correction().bypass_mode();
  out.max_tokens_per_micro_batch = config.trainer().max_tokens_per_micro_batch();
  return out;
}

TrainingStep::TrainingStep(TrainingStepOptions options, ShardedModel& policy,
                           ShardedModel* reference, AdamW& optimizer, const comm::DeviceMesh& mesh)
    : options_(std::move(options)),
      policy_(policy),
      reference_(reference),
      optimizer_(optimizer),
      mesh_(mesh),
      device_(policy.shards().front().master.device()) {}

absl::StatusOr<StepResult> TrainingStep::Supervised(const TrainingBatch& batch,
                                                    double learning_rate) {
  const Clock::time_point start = Clock::now();
  StepResult result;
  AddLengthMetrics(batch, result.metrics);
  UpdateStatistics statistics;
  AdamW::StepResult update;
  {
    PhaseTimer timer(result.metrics, "timing_s/update_actor");
    for (const MiniBatch& mini_batch : SplitBatch(batch, 0, LossAggregation::kTokenMean)) {
      for (const MicroBatch& micro_batch : mini_batch.micro_batches) {
        const auto loss = [&](const model::LogProbs& out) {
          return SupervisedLoss(out.logprobs, micro_batch.loss_weights.to(out.logprobs.device()));
        };
        ASSIGN_OR_RETURN(const double value, policy_.ForwardBackward(micro_batch.packed, loss));
        statistics.Add(Sum::kLoss, value);
      }
      ASSIGN_OR_RETURN(update, optimizer_.Step(learning_rate));
    }
    RETURN_IF_ERROR(statistics.Reduce(mesh_, device_));
  }
  result.weights_changed = !update.skipped;
  result.metrics["train/loss"] = statistics.Get(Sum::kLoss);
  result.metrics["actor/grad_norm"] = update.grad_norm;
  result.metrics["actor/lr"] = learning_rate;
  AddThroughput(batch, SecondsSince(start), mesh_.size(), result.metrics);
  return result;
}

absl::StatusOr<StepResult> TrainingStep::PolicyGradient(TrainingBatch batch, double learning_rate) {
  const Clock::time_point start = Clock::now();
  StepResult result;
  Metrics& metrics = result.metrics;
  {
    PhaseTimer timer(metrics, "timing_s/adv");
    AssignAdvantages(batch, options_.divide_advantages_by_std);
    AddLengthMetrics(batch, metrics);
    AddRewardMetrics(batch, metrics);
  }
  std::vector<MiniBatch> mini_batches =
      SplitBatch(batch, options_.mini_batch_groups, options_.aggregation);
  const int64_t num_updates = static_cast<int64_t>(mini_batches.size()) * options_.epochs;
  UpdateStatistics statistics;

  // With a single update the policy of the step's start is the one that is differentiated: its own
  // log-probs, detached, are the old ones, and need no pass of their own.
  const bool recompute_old = num_updates > 1 && !options_.rollout_logprobs_are_old;
  {
    PhaseTimer timer(metrics, "timing_s/old_log_prob");
    RETURN_IF_ERROR(ComputeOldLogProbs(mini_batches, recompute_old, statistics));
  }
  if (options_.use_kl_loss) {
    PhaseTimer timer(metrics, "timing_s/ref");
    RETURN_IF_ERROR(ComputeReferenceLogProbs(mini_batches));
  }

  double grad_norm_sum = 0;
  int64_t num_skipped = 0;
  {
    PhaseTimer timer(metrics, "timing_s/update_actor");
    int64_t update_index = 0;
    for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      for (const MiniBatch& mini_batch : mini_batches) {
        const bool compare_with_rollout = !recompute_old && update_index == 0;
        for (const MicroBatch& micro_batch : mini_batch.micro_batches) {
          const auto loss = [&](const model::LogProbs& out) {
            return PolicyGradientLoss(micro_batch, out, mini_batch.num_tokens,
                                      1.0 / static_cast<double>(num_updates), compare_with_rollout,
                                      statistics);
          };
          RETURN_IF_ERROR(policy_.ForwardBackward(micro_batch.packed, loss).status());
        }
        ASSIGN_OR_RETURN(const AdamW::StepResult update, optimizer_.Step(learning_rate));
        grad_norm_sum += update.grad_norm;
        num_skipped += update.skipped ? 1 : 0;
        result.weights_changed |= !update.skipped;
        ++update_index;
      }
    }
    RETURN_IF_ERROR(statistics.Reduce(mesh_, device_));
  }

  metrics["actor/loss"] = statistics.Get(Sum::kLoss);
  metrics["actor/pg_loss"] = statistics.Get(Sum::kPolicyLoss);
  metrics["actor/pg_clipfrac"] = statistics.Get(Sum::kClipFraction);
  metrics["actor/pg_clipfrac_lower"] = statistics.Get(Sum::kClipFractionLower);
  metrics["actor/ppo_kl"] = statistics.Get(Sum::kPolicyKl);
  metrics["actor/entropy"] = statistics.Get(Sum::kEntropy);
  if (options_.use_kl_loss) {
    metrics["actor/kl_loss"] = statistics.Get(Sum::kKlLoss);
    metrics["actor/kl_coef"] = options_.kl_loss_coef;
  }
  metrics["actor/grad_norm"] = grad_norm_sum / static_cast<double>(num_updates);
  metrics["actor/lr"] = learning_rate;
  metrics["actor/skipped_updates"] = static_cast<double>(num_skipped);
  statistics.AddProbDifferenceMetrics(metrics);
  AddThroughput(batch, SecondsSince(start), mesh_.size(), metrics);
  return result;
}

std::vector<TrainingStep::MiniBatch> TrainingStep::SplitBatch(const TrainingBatch& batch,
                                                              int64_t groups_each,
                                                              LossAggregation aggregation) const {
  if (groups_each <= 0) groups_each = std::max<int64_t>(1, batch.num_groups);
  std::vector<std::vector<int64_t>> members((batch.num_groups + groups_each - 1) / groups_each);
  for (int64_t i = 0; i < static_cast<int64_t>(batch.sequences.size()); ++i) {
    members[batch.sequences[i].group / groups_each].push_back(i);
  }

  std::vector<MiniBatch> mini_batches;
  for (const std::vector<int64_t>& indices : members) {
    MiniBatch mini_batch;
    std::vector<int64_t> num_trained, num_input;
    for (int64_t i : indices) {
      const Sequence& sequence = batch.sequences[i];
      num_trained.push_back(static_cast<int64_t>(sequence.trained.size()));
      num_input.push_back(sequence.num_input_tokens());
      mini_batch.num_tokens += static_cast<double>(sequence.trained.size());
    }
    if (mini_batch.num_tokens == 0) continue;
    const std::vector<double> weights = TokenWeights(aggregation, num_trained, options_.loss_scale);
    std::vector<double> weight_of(batch.sequences.size(), 0.0);
    for (size_t i = 0; i < indices.size(); ++i) weight_of[indices[i]] = weights[i];

    const MicroBatchPlan plan =
        PlanMicroBatches(num_input, mesh_.num_data_ranks(), options_.max_tokens_per_micro_batch);
    for (const std::vector<int64_t>& planned : plan[mesh_.data_rank()]) {
      std::vector<int64_t> packed;
      for (int64_t i : planned) packed.push_back(indices[i]);
      mini_batch.micro_batches.push_back(PackMicroBatch(batch, packed, weight_of));
    }
    mini_batches.push_back(std::move(mini_batch));
  }
  return mini_batches;
}

absl::Status TrainingStep::ComputeOldLogProbs(std::vector<MiniBatch>& mini_batches, bool recompute,
                                              UpdateStatistics& statistics) {
  for (MiniBatch& mini_batch : mini_batches) {
    for (MicroBatch& micro_batch : mini_batch.micro_batches) {
      if (recompute) {
        ASSIGN_OR_RETURN(const model::LogProbs out, policy_.Forward(micro_batch.packed));
        micro_batch.old_logprobs = out.logprobs;
        if (micro_batch.num_rows() > 0) {
          statistics.AddProbDifferences(out.logprobs, micro_batch.rollout_logprobs);
        }
      } else if (options_.rollout_logprobs_are_old) {
        micro_batch.old_logprobs = micro_batch.rollout_logprobs;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TrainingStep::ComputeReferenceLogProbs(std::vector<MiniBatch>& mini_batches) {
  for (MiniBatch& mini_batch : mini_batches) {
    for (MicroBatch& micro_batch : mini_batch.micro_batches) {
      ASSIGN_OR_RETURN(const model::LogProbs out, reference_->Forward(micro_batch.packed));
      micro_batch.ref_logprobs = out.logprobs;
    }
  }
  return absl::OkStatus();
}

at::Tensor TrainingStep::PolicyGradientLoss(const MicroBatch& micro_batch,
                                            const model::LogProbs& out, double num_tokens,
                                            double share, bool compare_with_rollout,
                                            UpdateStatistics& statistics) const {
  const at::Device device = out.logprobs.device();
  const at::Tensor weights = micro_batch.loss_weights.to(device);
  const at::Tensor old_logprobs = micro_batch.old_logprobs.defined()
                                      ? micro_batch.old_logprobs.to(device)
                                      : out.logprobs.detach();

  const PolicyLoss policy = ClippedPolicyLoss(out.logprobs, old_logprobs,
                                              micro_batch.advantages.to(device), options_.clip);
  at::Tensor loss = (policy.loss * weights).sum();
  statistics.Add(Sum::kPolicyLoss, share * WeightedSum(policy.loss, weights));
  if (options_.use_kl_loss) {
    const at::Tensor kl =
        KlLoss(out.logprobs, micro_batch.ref_logprobs.to(device), options_.kl_estimator);
    loss = loss + (kl * weights).sum() * options_.kl_loss_coef;
    statistics.Add(Sum::kKlLoss, share * WeightedSum(kl, weights));
  }
  if (options_.entropy_coeff != 0) {
    loss = loss + EntropyBonus(out.entropy, weights, options_.entropy_coeff);
  }

  const double token_share = share / num_tokens;
  statistics.Add(Sum::kLoss, share * loss.item<double>());
  statistics.Add(Sum::kClipFraction, token_share * SumOf(policy.clipped));
  statistics.Add(Sum::kClipFractionLower, token_share * SumOf(policy.clipped_lower));
  statistics.Add(Sum::kPolicyKl, -token_share * SumOf(policy.log_ratio));
  statistics.Add(Sum::kEntropy, token_share * SumOf(out.entropy));
  if (compare_with_rollout) {
    statistics.AddProbDifferences(out.logprobs, micro_batch.rollout_logprobs);
  }
  return loss;
}

}  // namespace tandem::trainer
