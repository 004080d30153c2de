#include "services/trainer/algorithm/batch_metrics.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace tandem::trainer {
namespace {

struct Range {
  double sum = 0;
  double count = 0;
  double max = -std::numeric_limits<double>::infinity();
  double min = std::numeric_limits<double>::infinity();

  void Add(double value) {
    sum += value;
    ++count;
    max = std::max(max, value);
    min = std::min(min, value);
  }

  void WriteTo(Metrics& metrics, const std::string& name) const {
    if (count == 0) return;
    metrics[name + "/mean"] = sum / count;
    metrics[name + "/max"] = max;
    metrics[name + "/min"] = min;
  }
};

// Unbiased.
double Variance(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  double mean = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares / static_cast<double>(values.size() - 1);
}

}  // namespace

void AddLengthMetrics(const TrainingBatch& batch, Metrics& metrics) {
  Range prompts, responses;
  double num_cut = 0;
  for (const Sequence& sequence : batch.sequences) {
    prompts.Add(static_cast<double>(sequence.prompt_tokens));
    responses.Add(static_cast<double>(sequence.response_tokens));
    if (sequence.is_cut) ++num_cut;
  }
  prompts.WriteTo(metrics, "prompt_length");
  responses.WriteTo(metrics, "response_length");
  if (responses.count > 0) metrics["response_length/clip_ratio"] = num_cut / responses.count;
  metrics["perf/total_num_tokens"] = static_cast<double>(batch.num_tokens());
}

void AddRewardMetrics(const TrainingBatch& batch, Metrics& metrics) {
  Range scores, rewards, advantages;
  for (const Sequence& sequence : batch.sequences) {
    scores.Add(sequence.reward);
    rewards.Add(sequence.total_reward());
    for (float advantage : sequence.advantages) advantages.Add(advantage);
  }
  scores.WriteTo(metrics, "critic/score");
  rewards.WriteTo(metrics, "critic/rewards");
  advantages.WriteTo(metrics, "critic/advantages");
}

void AddValueMetrics(const TrainingBatch& batch, Metrics& metrics) {
  Range values, returns;
  std::vector<double> all_returns, errors;
  for (const Sequence& sequence : batch.sequences) {
    for (size_t t = 0; t < sequence.returns.size(); ++t) {
      values.Add(sequence.values[t]);
      returns.Add(sequence.returns[t]);
      all_returns.push_back(sequence.returns[t]);
      errors.push_back(sequence.returns[t] - sequence.values[t]);
    }
  }
  values.WriteTo(metrics, "critic/values");
  returns.WriteTo(metrics, "critic/returns");
  metrics["critic/vf_explained_var"] = 1.0 - Variance(errors) / (Variance(all_returns) + 1e-5);
}

}  // namespace tandem::trainer
