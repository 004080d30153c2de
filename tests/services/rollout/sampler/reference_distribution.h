// What the sampler should draw from, computed plainly.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_SAMPLER_REFERENCE_DISTRIBUTION_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_SAMPLER_REFERENCE_DISTRIBUTION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "services/rollout/sampler/sampler.h"

namespace tandem::rollout {

inline std::vector<float> RandomLogits(int64_t n, uint32_t seed, float spread = 3.0f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = normal(generator);
  return logits;
}

// The probabilities that the filters leave, by sorting everything, in float64.
inline std::vector<double> Reference(const std::vector<float>& logits, const FilterParams& params) {
  const size_t n = logits.size();
  std::vector<size_t> rank(n);
  std::iota(rank.begin(), rank.end(), size_t{0});
  std::stable_sort(rank.begin(), rank.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  std::vector<double> weight(n);
  for (size_t i = 0; i < n; ++i) {
    weight[i] = std::exp((logits[i] - logits[rank[0]]) / params.temperature);
  }
  size_t kept = params.top_k > 0 ? std::min<size_t>(params.top_k, n) : n;
  double total = 0.0;
  for (size_t i = 0; i < kept; ++i) total += weight[rank[i]];
  double sum = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    sum += weight[rank[i]];
    if (sum >= params.top_p * total) kept = i + 1;
  }
  while (kept > 1 && weight[rank[kept - 1]] < params.min_p) --kept;
  std::vector<double> p(n, 0.0);
  total = 0.0;
  for (size_t i = 0; i < kept; ++i) total += weight[rank[i]];
  for (size_t i = 0; i < kept; ++i) p[rank[i]] = weight[rank[i]] / total;
  return p;
}

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_SAMPLER_REFERENCE_DISTRIBUTION_H_
