#include "services/trainer/algorithm/rejection.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

namespace tandem::trainer {
namespace {

using config::RejectionRule;
using Level = RejectionRule::Level;
using Measure = RejectionRule::Measure;

double Measured(Measure measure, double log_ratio) {
  const double d = std::clamp(log_ratio, -20.0, 20.0);
  switch (measure) {
    case Measure::kK1:
      return -d;
    case Measure::kK2:
      return 0.5 * d * d;
    case Measure::kK3:
      return std::exp(d) - 1.0 - d;
    case Measure::kLogRatio:
      break;
  }
  return d;
}

// The statistic that decides about each token of a sequence.
std::vector<double> Statistics(const Sequence& sequence, const RejectionRule& rule) {
  std::vector<double> out(sequence.trained.size());
  double sum = 0;
  double largest = -std::numeric_limits<double>::infinity();
  for (size_t t = 0; t < out.size(); ++t) {
    out[t] = Measured(rule.measure,
                      static_cast<double>(sequence.old_logprobs[t]) - sequence.rollout_logprobs[t]);
    sum += out[t];
    largest = std::max(largest, out[t]);
  }
  const double of_sequence = rule.level == Level::kSequenceSum ? sum
                             : rule.level == Level::kSequenceMax
                                 ? largest
                                 : sum / static_cast<double>(out.size());
  if (rule.level != Level::kToken) std::fill(out.begin(), out.end(), of_sequence);
  return out;
}

// Counts of one rule, or of all together.
struct Tally {
  double tokens = 0, masked = 0, sequences = 0, with_masked = 0;
  double sum = 0, high = 0, low = 0;
  double max = -std::numeric_limits<double>::infinity();
  double min = std::numeric_limits<double>::infinity();

  void AddMask(const std::vector<bool>& keep) {
    if (keep.empty()) return;
    const auto refused = static_cast<double>(std::count(keep.begin(), keep.end(), false));
    tokens += static_cast<double>(keep.size());
    masked += refused;
    ++sequences;
    with_masked += refused > 0 ? 1 : 0;
  }
  void WriteMask(const std::string& name, Metrics& metrics) const {
    metrics[name + "_masked_fraction"] = masked / tokens;
    metrics[name + "_seq_masked_fraction"] = with_masked / sequences;
  }
};

// Fractions are of tokens, or of sequences where the rule is over these.
void AddStatistics(const std::vector<double>& statistics, const RejectionRule& rule, Tally& tally) {
  const bool of_sequence = rule.level != Level::kToken;
  for (size_t t = 0; t < statistics.size(); ++t) {
    tally.sum += statistics[t];
    tally.max = std::max(tally.max, statistics[t]);
    tally.min = std::min(tally.min, statistics[t]);
    if (of_sequence && t > 0) continue;
    tally.high += statistics[t] > rule.high ? 1 : 0;
    tally.low += statistics[t] < rule.low ? 1 : 0;
  }
}

void WriteRule(const Tally& tally, const RejectionRule& rule, Metrics& metrics) {
  const std::string name = "rollout_corr/rollout_rs_" + rule.name;
  const double units = rule.level == Level::kToken ? tally.tokens : tally.sequences;
  metrics[name + "_mean"] = tally.sum / tally.tokens;
  metrics[name + "_max"] = tally.max;
  metrics[name + "_min"] = tally.min;
  metrics[name + "_fraction_high"] = tally.high / units;
  metrics[name + "_fraction_low"] = tally.low / units;
  tally.WriteMask(name, metrics);
}

}  // namespace

void RejectTokens(TrainingBatch& batch, const std::vector<RejectionRule>& rules, Metrics& metrics) {
  if (rules.empty() || batch.num_trained_tokens() == 0) return;
  std::vector<std::vector<bool>> keep;
  for (const Sequence& sequence : batch.sequences) keep.emplace_back(sequence.trained.size(), true);

  for (const RejectionRule& rule : rules) {
    Tally tally;
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const std::vector<double> statistics = Statistics(batch.sequences[i], rule);
      std::vector<bool> passes(statistics.size());
      for (size_t t = 0; t < statistics.size(); ++t) {
        passes[t] = statistics[t] >= rule.low && statistics[t] <= rule.high;
        keep[i][t] = keep[i][t] && passes[t];
      }
      tally.AddMask(passes);
      AddStatistics(statistics, rule, tally);
    }
    WriteRule(tally, rule, metrics);
  }

  Tally together;
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    together.AddMask(keep[i]);
    KeepTokens(batch.sequences[i], keep[i]);
  }
  together.WriteMask("rollout_corr/rollout_rs", metrics);
}

}  // namespace tandem::trainer
