#include "services/trainer/algorithm/preference_step.h"

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>

#include "common/device/upload.h"
#include "common/status/status_macros.h"
#include "services/trainer/algorithm/batch_metrics.h"
#include "services/trainer/algorithm/deferred_values.h"
#include "services/trainer/algorithm/nonfinite_loss.h"
#include "services/trainer/algorithm/phase_timer.h"
#include "services/trainer/algorithm/reduce_sums.h"
#include "services/trainer/algorithm/sequence_rows.h"
#include "services/trainer/algorithm/token_scores.h"
#include "services/trainer/data/micro_batch_plan.h"

namespace tandem::trainer {
namespace {

// Log-probs of completions from those of their tokens, [num_pairs, 2]: chosen, rejected.
at::Tensor OfPairs(const SequenceRows& rows, const at::Tensor& token_logprobs,
                   const PreferenceLossKind& kind) {
  // In float64: a margin is a small difference of sums over many tokens.
  const at::Tensor values = token_logprobs.to(at::kDouble);
  return (kind.is_length_normalized ? rows.Mean(values) : rows.Sum(values)).view({-1, 2});
}

}  // namespace

PreferenceOptions MakePreferenceOptions(const config::v1::RunConfig& config) {
  PreferenceOptions out;
  out.loss = {config.dpo().beta(), config.dpo().label_smoothing(),
              FindPreferenceLoss(config.dpo().loss_type())};
  out.max_tokens_per_micro_batch = config.trainer().max_tokens_per_micro_batch();
  return out;
}

PreferenceStep::PreferenceStep(const PreferenceOptions& options, ShardedModel& policy,
                               Optimizer& optimizer, const comm::DeviceMesh& mesh)
    : options_(options),
      policy_(policy),
      optimizer_(optimizer),
      mesh_(mesh),
      device_(policy.device()) {}

absl::StatusOr<StepResult> PreferenceStep::Run(TrainingBatch batch, ShardedModel& reference,
                                               double learning_rate) {
  ASSIGN_OR_RETURN(const std::vector<PreferencePair> pairs, FindPreferencePairs(batch));
  StepResult result;
  Metrics& metrics = result.metrics;
  AddLengthMetrics(batch, metrics);
  {
    PhaseTimer timer(metrics, "timing_s/ref");
    ASSIGN_OR_RETURN(std::vector<std::vector<float>> logprobs,
                     ScoreTokens(batch, mesh_, device_, options_.max_tokens_per_micro_batch,
                                 [&](const PackedBatch& packed) -> absl::StatusOr<at::Tensor> {
                                   ASSIGN_OR_RETURN(const model::LogProbs out,
                                                    reference.Forward(packed));
                                   return out.logprobs;
                                 }));
    for (size_t i = 0; i < logprobs.size(); ++i) {
      batch.sequences[i].ref_logprobs = std::move(logprobs[i]);
    }
  }

  PhaseTimer timer(metrics, "timing_s/update_actor");
  const double share = 1.0 / static_cast<double>(pairs.size());
  std::array<double, kNumSums> sums{};
  int64_t index = 0;
  const std::vector<MicroBatch> micro_batches = PackPairs(batch, pairs);
  DeferredValues later;
  for (const MicroBatch& micro_batch : micro_batches) {
    const auto loss = [&](const model::LogProbs& out) {
      const at::Device device = out.logprobs.device();
      const SequenceRows rows(micro_batch.sequence_index, device);
      const PreferenceLossKind& kind = *options_.loss.kind;
      const at::Tensor logprobs = OfPairs(rows, out.logprobs, kind);
      const at::Tensor references =
          OfPairs(rows, device::Upload(micro_batch.ref_logprobs, device), kind);
      const PreferenceLoss of_pairs =
          ComputePreferenceLoss(logprobs.select(1, 0), logprobs.select(1, 1),
                                references.select(1, 0), references.select(1, 1), options_.loss);
      const at::Tensor sum = of_pairs.loss.sum() * share;
      later.AddSum(sum,
                   [&micro_batch, &sums, index, logprobs = out.logprobs.detach()](double value) {
                     if (!std::isfinite(value)) {
                       LogNonFiniteLoss(micro_batch, 0, index,
                                        {{"log-probs", logprobs},
                                         {"log-probs of the reference", micro_batch.ref_logprobs}});
                     }
                     sums[kLoss] += value;
                   });
      const auto add = [&](int sum_index, const at::Tensor& values) {
        later.AddSum(values,
                     [&sums, sum_index, share](double value) { sums[sum_index] += share * value; });
      };
      add(kChosen, of_pairs.chosen_rewards);
      add(kRejected, of_pairs.rejected_rewards);
      add(kAccuracy, of_pairs.chosen_rewards.gt(of_pairs.rejected_rewards));
      add(kChosenLogProb, logprobs.select(1, 0));
      add(kRejectedLogProb, logprobs.select(1, 1));
      return sum;
    };
    RETURN_IF_ERROR(policy_.QueueForwardBackward(micro_batch.packed, loss).status());
    ++index;
  }
  RETURN_IF_ERROR(later.Read());
  ASSIGN_OR_RETURN(const Optimizer::StepResult update, optimizer_.Step(learning_rate));
  if (update.skipped) result.skipped.push_back(update.cause);
  RETURN_IF_ERROR(ReduceSums(absl::MakeSpan(sums), mesh_, device_, "the pairs' statistics"));
  result.weights_changed = !update.skipped;
  metrics["train/loss"] = sums[kLoss];
  metrics["rewards/chosen"] = sums[kChosen];
  metrics["rewards/rejected"] = sums[kRejected];
  metrics["rewards/margins"] = sums[kChosen] - sums[kRejected];
  metrics["rewards/accuracies"] = sums[kAccuracy];
  metrics["logps/chosen"] = sums[kChosenLogProb];
  metrics["logps/rejected"] = sums[kRejectedLogProb];
  metrics["actor/grad_norm"] = update.grad_norm;
  metrics["actor/lr"] = learning_rate;
  metrics["actor/skipped_updates"] = update.skipped ? 1 : 0;
  return result;
}

std::vector<MicroBatch> PreferenceStep::PackPairs(const TrainingBatch& batch,
                                                  const std::vector<PreferencePair>& pairs) const {
  std::vector<int64_t> lengths;
  for (const PreferencePair& pair : pairs) {
    lengths.push_back(batch.sequences[pair.chosen].num_input_tokens() +
                      batch.sequences[pair.rejected].num_input_tokens());
  }
  const MicroBatchPlan plan =
      PlanMicroBatches(lengths, mesh_.num_data_ranks(), options_.max_tokens_per_micro_batch);
  const std::vector<double> no_weights(batch.sequences.size(), 0.0);
  std::vector<MicroBatch> micro_batches;
  for (const std::vector<int64_t>& planned : plan[mesh_.data_rank()]) {
    std::vector<int64_t> indices;
    for (const int64_t p : planned) {
      indices.push_back(pairs[p].chosen);
      indices.push_back(pairs[p].rejected);
    }
    micro_batches.push_back(PackMicroBatch(batch, indices, no_weights));
  }
  return micro_batches;
}

}  // namespace tandem::trainer
