#include "services/trainer/algorithm/whitening.h"

#include <cmath>

namespace tandem::trainer {
namespace {

constexpr double kEps = 1e-8;

}  // namespace

void Whiten(std::vector<std::vector<double>>& values) {
  double sum = 0;
  double count = 0;
  for (const std::vector<double>& sequence : values) {
    for (double value : sequence) sum += value;
    count += static_cast<double>(sequence.size());
  }
  if (count == 0) return;
  const double mean = sum / count;
  double squares = 0;
  for (const std::vector<double>& sequence : values) {
    for (double value : sequence) squares += (value - mean) * (value - mean);
  }
  const double variance = count > 1 ? squares / (count - 1) : 0.0;
  const double scale = 1.0 / std::sqrt(variance + kEps);
  for (std::vector<double>& sequence : values) {
    for (double& value : sequence) value = (value - mean) * scale;
  }
}

}  // namespace tandem::trainer
