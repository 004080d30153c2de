#include "services/trainer/algorithm/batch_metrics.h"

#include <algorithm>
#include <limits>
#include <string>

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

}  // namespace tandem::trainer
