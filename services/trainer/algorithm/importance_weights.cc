#include "services/trainer/algorithm/importance_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace tandem::trainer {
namespace {

constexpr double kLargestLogRatio = 20.0;

// Inputs of the metrics: unbounded and bounded weights, sequence by sequence.
struct Weights {
  std::vector<std::vector<double>> raw, bounded;
  std::vector<double> log_ratio_sums;  // of sequences
};

double Bounded(double weight, const config::WeightBounds& bounds) {
  if (!bounds.masks) return std::min(weight, bounds.high);
  return weight >= bounds.low && weight <= bounds.high ? weight : 0.0;
}

Weights MakeWeights(const TrainingBatch& batch, const ImportanceWeightOptions& options) {
  const auto weight_of = [](double log_ratio) {
    return std::exp(std::clamp(log_ratio, -kLargestLogRatio, kLargestLogRatio));
  };
  Weights out;
  for (const Sequence& sequence : batch.sequences) {
    const size_t n = sequence.trained.size();
    std::vector<double> log_ratios(n);
    double sum = 0;
    for (size_t t = 0; t < n; ++t) {
      log_ratios[t] = static_cast<double>(sequence.old_logprobs[t]) - sequence.rollout_logprobs[t];
      sum += log_ratios[t];
    }
    std::vector<double>& raw = out.raw.emplace_back(n);
    std::vector<double>& bounded = out.bounded.emplace_back(n);
    for (size_t t = 0; t < n; ++t) {
      raw[t] = weight_of(options.level == RolloutIs::kSequence ? sum : log_ratios[t]);
      bounded[t] = Bounded(raw[t], options.bounds);
    }
    if (n > 0) out.log_ratio_sums.push_back(sum);
  }
  return out;
}

// Mean over tokens, or over the sequences' means.
double MeanWeight(const std::vector<std::vector<double>>& weights, bool of_sequences) {
  double sum = 0;
  double count = 0;
  for (const std::vector<double>& sequence : weights) {
    if (sequence.empty()) continue;
    double of_sequence = 0;
    for (double weight : sequence) of_sequence += weight;
    const auto n = static_cast<double>(sequence.size());
    sum += of_sequences ? of_sequence / n : of_sequence;
    count += of_sequences ? 1.0 : n;
  }
  return count > 0 ? sum / count : 1.0;
}

// Sums over the values that are added.
struct Moments {
  double count = 0, sum = 0, squares = 0;
  double max = -std::numeric_limits<double>::infinity();
  double min = std::numeric_limits<double>::infinity();

  void Add(double value) {
    ++count;
    sum += value;
    squares += value * value;
    max = std::max(max, value);
    min = std::min(min, value);
  }
  double mean() const { return sum / count; }
  double variance() const { return std::max(0.0, squares / count - mean() * mean()); }
};

void AddTokenMetrics(const Weights& weights, const ImportanceWeightOptions& options, double low,
                     const std::string& name, Metrics& metrics) {
  const double high = options.bounds.high;
  Moments applied;
  double above = 0, below = 0, outside = 0;
  for (size_t i = 0; i < weights.raw.size(); ++i) {
    for (size_t t = 0; t < weights.raw[i].size(); ++t) {
      const double raw = weights.raw[i][t];
      applied.Add(weights.bounded[i][t]);
      above += raw > high ? 1 : 0;
      below += raw < low ? 1 : 0;
      outside += raw > high || raw < options.bounds.low ? 1 : 0;
    }
  }
  metrics[name + "_mean"] = applied.mean();
  metrics[name + "_max"] = applied.max;
  metrics[name + "_min"] = applied.min;
  metrics[name + "_std"] = std::sqrt(applied.variance());
  metrics[name + "_ratio_fraction_high"] = above / applied.count;
  metrics[name + "_ratio_fraction_low"] = below / applied.count;
  // 1 / E[(w / E[w])^2], the share of the tokens that as many equal weights would be.
  const double mean_square = applied.squares / applied.count;
  metrics[name + "_eff_sample_size"] =
      mean_square > 0 ? applied.mean() * applied.mean() / mean_square : 0.0;
  if (options.bounds.masks) metrics[name + "_oob_ratio"] = outside / applied.count;
}

void AddSequenceMetrics(const Weights& weights, const ImportanceWeightOptions& options, double low,
                        const std::string& name, Metrics& metrics) {
  const auto mean_of = [](const std::vector<double>& values) {
    double sum = 0;
    for (double value : values) sum += value;
    return sum / static_cast<double>(values.size());
  };
  Moments means;
  double deviation = 0, above = 0, below = 0;
  for (size_t i = 0; i < weights.raw.size(); ++i) {
    if (weights.raw[i].empty()) continue;
    const double mean = mean_of(weights.bounded[i]);
    const double raw_mean = mean_of(weights.raw[i]);
    means.Add(mean);
    deviation = std::max(deviation, std::abs(mean - 1.0));
    above += raw_mean > options.bounds.high ? 1 : 0;
    below += raw_mean < low ? 1 : 0;
  }
  metrics[name + "_seq_mean"] = means.mean();
  metrics[name + "_seq_max"] = means.max;
  metrics[name + "_seq_min"] = means.min;
  metrics[name + "_seq_std"] =
      means.count > 1 ? std::sqrt(means.variance() * means.count / (means.count - 1)) : 0.0;
  metrics[name + "_seq_max_deviation"] = deviation;
  metrics[name + "_seq_fraction_high"] = above / means.count;
  metrics[name + "_seq_fraction_low"] = below / means.count;
  if (options.level != RolloutIs::kSequence) return;

  // A sequence's weight may be far beyond the range of a float, so its extremes come from
  // logarithms.
  Moments logs;
  double log_above = 0, log_below = 0;
  for (double sum : weights.log_ratio_sums) {
    logs.Add(sum);
    log_above += sum > std::log(options.bounds.high) ? 1 : 0;
    log_below += sum < std::log(low) ? 1 : 0;
  }
  metrics[name + "_max"] = std::exp(std::min(logs.max, kLargestLogRatio));
  metrics[name + "_min"] = std::exp(logs.min);
  metrics[name + "_ratio_fraction_high"] = log_above / logs.count;
  metrics[name + "_ratio_fraction_low"] = log_below / logs.count;
}

}  // namespace

void AssignImportanceWeights(TrainingBatch& batch, const ImportanceWeightOptions& options,
                             Metrics& metrics) {
  if (options.level == RolloutIs::kNone || batch.num_trained_tokens() == 0) return;
  const std::string name = "rollout_corr/rollout_is";
  const Weights weights = MakeWeights(batch, options);
  const double low = options.bounds.masks ? options.bounds.low : 1.0 / options.bounds.high;
  AddTokenMetrics(weights, options, low, name, metrics);
  AddSequenceMetrics(weights, options, low, name, metrics);

  double scale = 1.0;
  if (options.batch_normalize) {
    const double mean = MeanWeight(weights.bounded, options.level == RolloutIs::kSequence);
    if (mean > 1e-8) scale = mean;
    metrics[name + "_batch_norm_factor"] = scale;
  }
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    std::vector<float>& out = batch.sequences[i].importance_weights;
    out.clear();
    for (double weight : weights.bounded[i]) out.push_back(static_cast<float>(weight / scale));
  }
}

}  // namespace tandem::trainer
