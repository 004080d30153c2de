#include "services/trainer/algorithm/entropy_mask.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace tandem::trainer {
namespace {

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace

double MaskLowEntropy(TrainingBatch& batch, double share) {
  std::vector<double> entropies;
  for (const Sequence& sequence : batch.sequences) {
    entropies.insert(entropies.end(), sequence.entropies.begin(), sequence.entropies.end());
  }
  if (entropies.empty()) return 0.0;
  const double threshold = Quantile(std::move(entropies), 1.0 - share);
  for (Sequence& sequence : batch.sequences) {
    if (sequence.importance_weights.empty()) {
      sequence.importance_weights.assign(sequence.trained.size(), 1.0f);
    }
    for (size_t t = 0; t < sequence.trained.size(); ++t) {
      if (sequence.entropies[t] < threshold) sequence.importance_weights[t] = 0.0f;
    }
  }
  return threshold;
}

}  // namespace tandem::trainer
