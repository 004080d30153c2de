#include "services/trainer/algorithm/critic.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/device/upload.h"
#include "common/status/status_macros.h"
#include "services/trainer/algorithm/batch_metrics.h"
#include "services/trainer/algorithm/deferred_values.h"
#include "services/trainer/algorithm/nonfinite_loss.h"
#include "services/trainer/algorithm/phase_timer.h"
#include "services/trainer/algorithm/reduce_sums.h"
#include "services/trainer/algorithm/token_scores.h"
#include "services/trainer/algorithm/training_step_options.h"
#include "services/trainer/algorithm/value_loss.h"
#include "services/trainer/data/shared_prefix.h"

namespace tandem::trainer {
namespace {

// Reported statistics of the updates: sums over rows, over ranks after ReduceSums().
struct ValueStatistics {
  enum Sum { kLoss, kClipFraction, kPrediction, kNumSums };
  std::array<double, kNumSums> sums{};
};

}  // namespace

CriticOptions MakeCriticOptions(const config::v1::RunConfig& config) {
  const config::v1::CriticConfig& critic = config.critic();
  CriticOptions out;
  out.cliprange_value = critic.cliprange_value();
  out.mini_batch = MakeTrainingStepOptions(config).mini_batch;
  out.mini_batch.aggregation = AggregationOf(critic.loss_agg_mode());
  if (critic.ppo_mini_batch_size() > 0) out.mini_batch.groups_each = critic.ppo_mini_batch_size();
  out.epochs = std::max<int64_t>(
      1, critic.ppo_epochs() > 0 ? critic.ppo_epochs() : config.actor().ppo_epochs());
  return out;
}

Critic::Critic(const CriticOptions& options, ShardedModel& model, Optimizer& optimizer,
               const comm::DeviceMesh& mesh)
    : options_(options),
      model_(model),
      optimizer_(optimizer),
      mesh_(mesh),
      device_(model.device()) {
  options_.mini_batch.groups_together = SharesPrefixes(device_, mesh_.sequence().size());
}

absl::Status Critic::Score(TrainingBatch& batch, Metrics& metrics) {
  PhaseTimer timer(metrics, "timing_s/values");
  ASSIGN_OR_RETURN(
      std::vector<std::vector<float>> values,
      ScoreTokens(batch, mesh_, device_, options_.mini_batch.max_tokens_per_micro_batch,
                  [this](const PackedBatch& packed) { return model_.ForwardValues(packed); }));
  for (size_t i = 0; i < values.size(); ++i) batch.sequences[i].values = std::move(values[i]);
  return absl::OkStatus();
}

absl::Status Critic::Update(const TrainingBatch& batch, double learning_rate, Metrics& metrics,
                            std::vector<std::string>& skipped) {
  PhaseTimer timer(metrics, "timing_s/update_critic");
  const std::vector<MiniBatch> mini_batches = SplitBatch(batch, options_.mini_batch, mesh_);
  const double num_updates = static_cast<double>(mini_batches.size()) * options_.epochs;
  ValueStatistics statistics;
  const auto add = [&](ValueStatistics::Sum sum, double value) {
    statistics.sums[sum] += value / num_updates;
  };
  double grad_norm_sum = 0;
  int64_t num_skipped = 0;
  int64_t update_index = 0;
  for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
    for (const MiniBatch& mini_batch : mini_batches) {
      DeferredValues later;
      for (size_t m = 0; m < mini_batch.micro_batches.size(); ++m) {
        const MicroBatch& micro_batch = mini_batch.micro_batches[m];
        const auto loss = [&](const at::Tensor& values) {
          const at::Device device = values.device();
          const ValueLoss of_tokens = ClippedValueLoss(
              values, device::Upload(micro_batch.values, device),
              device::Upload(micro_batch.returns, device), options_.cliprange_value);
          const at::Tensor sum =
              (of_tokens.loss * device::Upload(micro_batch.loss_weights, device)).sum();
          later.AddSum(
              sum, [&micro_batch, &add, update_index, m, values = values.detach()](double value) {
                if (!std::isfinite(value)) {
                  LogNonFiniteLoss(micro_batch, update_index, static_cast<int64_t>(m),
                                   {{"values", values}, {"returns", micro_batch.returns}});
                }
                add(ValueStatistics::kLoss, value);
              });
          const auto add_mean = [&](ValueStatistics::Sum of, const at::Tensor& summands) {
            later.AddSum(summands, [&add, &mini_batch, of](double value) {
              add(of, value / mini_batch.num_tokens);
            });
          };
          add_mean(ValueStatistics::kClipFraction, of_tokens.clipped);
          add_mean(ValueStatistics::kPrediction, values);
          return sum;
        };
        RETURN_IF_ERROR(model_.QueueForwardBackwardValues(micro_batch.packed, loss).status());
      }
      RETURN_IF_ERROR(later.Read());
      ASSIGN_OR_RETURN(const Optimizer::StepResult update, optimizer_.Step(learning_rate));
      grad_norm_sum += update.grad_norm;
      if (update.skipped) {
        ++num_skipped;
        skipped.push_back("critic: " + update.cause);
      }
      ++update_index;
    }
  }
  RETURN_IF_ERROR(
      ReduceSums(absl::MakeSpan(statistics.sums), mesh_, device_, "the critic's statistics"));
  AddValueMetrics(batch, metrics);
  metrics["critic/vf_loss"] = statistics.sums[ValueStatistics::kLoss];
  metrics["critic/vf_clipfrac"] = statistics.sums[ValueStatistics::kClipFraction];
  metrics["critic/vpred_mean"] = statistics.sums[ValueStatistics::kPrediction];
  if (num_updates > 0) metrics["critic/grad_norm"] = grad_norm_sum / num_updates;
  metrics["critic/lr"] = learning_rate;
  metrics["critic/skipped_updates"] = static_cast<double>(num_skipped);
  return absl::OkStatus();
}

}  // namespace tandem::trainer
