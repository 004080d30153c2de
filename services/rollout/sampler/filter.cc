#include "services/rollout/sampler/filter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "services/rollout/sampler/row_kernel.h"

namespace tandem::rollout {
namespace {

constexpr int kBins = 1024;
// exp(-104) is 0 in float32: tokens farther below the maximum weigh nothing.
constexpr float kFarthest = 104.0f;

// Bins of the distance from the maximum, in units of the temperature; monotone in the logit.
class Bins {
 public:
  explicit Bins(const Row& row) : row_(row) {
    const float farthest =
        std::min(kFarthest, (row.maximum - row.minimum) * row.inverse_temperature);
    scale_ = farthest > 0.0f ? kBins / farthest : 0.0f;
  }
  int Of(float logit) const {
    const float bin = (row_.maximum - logit) * row_.inverse_temperature * scale_;
    return bin < kBins - 1 ? static_cast<int>(bin) : kBins - 1;  // NaN of 0 * inf: the last
  }

 private:
  const Row& row_;
  float scale_;
};

// Returns the candidate, in rank order, at which the weight `wanted` is reached, else the last.
Candidate Reach(const Row& row, const std::vector<Candidate>& sorted, double wanted) {
  thread_local std::vector<float> logits, weights;
  logits.resize(sorted.size());
  weights.resize(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) logits[i] = sorted[i].logit;
  Exp(logits.data(), static_cast<int64_t>(logits.size()), row.maximum, row.inverse_temperature,
      weights.data());
  double sum = 0.0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += weights[i];
    if (sum >= wanted) return sorted[i];
  }
  return sorted.back();
}

}  // namespace

void TopK(const Row& row, int64_t k, std::vector<Candidate>& kept) {
  // Room for k more candidates between two selections makes their cost linear in the row.
  const int64_t capacity = std::max<int64_t>(2 * k, 128);
  kept.resize(capacity);
  int64_t count = 0;
  float threshold = -std::numeric_limits<float>::infinity();
  for (int64_t next = 0; next < row.size;) {
    count += CollectAtLeast(row.logits, next, row.size, threshold, kept.data() + count,
                            capacity - count, &next);
    if (count < capacity) break;  // the row's end
    std::nth_element(kept.begin(), kept.begin() + (k - 1), kept.end(), RanksBefore);
    count = k;
    threshold = kept[k - 1].logit;
  }
  kept.resize(count);
  if (count > k) {
    std::nth_element(kept.begin(), kept.begin() + (k - 1), kept.end(), RanksBefore);
    kept.resize(k);
  }
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

Candidate TopPLast(const Row& row, const std::vector<Candidate>& candidates, double top_p) {
  thread_local std::vector<Candidate> sorted;
  sorted = candidates;
  std::sort(sorted.begin(), sorted.end(), RanksBefore);
  thread_local std::vector<float> logits;
  logits.resize(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) logits[i] = sorted[i].logit;
  const double total = SumExp(logits.data(), static_cast<int64_t>(logits.size()), row.maximum,
                              row.inverse_temperature, nullptr);
  return Reach(row, sorted, top_p * total);
}

Candidate TopPLast(const Row& row, double top_p) {
  const Bins bins(row);
  std::array<double, kBins> sums{};
  float weights[kSumBlock];
  for (int64_t block = 0; block < row.size; block += kSumBlock) {
    const int64_t n = std::min(kSumBlock, row.size - block);
    Exp(row.logits + block, n, row.maximum, row.inverse_temperature, weights);
    for (int64_t i = 0; i < n; ++i) sums[bins.Of(row.logits[block + i])] += weights[i];
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  const double wanted = top_p * total;
  double before = 0.0;
  int bin = 0;
  while (bin < kBins - 1 && before + sums[bin] < wanted) before += sums[bin++];

  thread_local std::vector<Candidate> members;
  members.clear();
  for (int64_t i = 0; i < row.size; ++i) {
    if (bins.Of(row.logits[i]) == bin) members.push_back({row.logits[i], static_cast<int32_t>(i)});
  }
  if (members.empty()) return {row.minimum, std::numeric_limits<int32_t>::max()};
  std::sort(members.begin(), members.end(), RanksBefore);
  return Reach(row, members, wanted - before);
}

Candidate MinPLast(const Row& row, double min_p) {
  const double logit = row.maximum + std::log(min_p) / row.inverse_temperature;
  return {static_cast<float>(logit), std::numeric_limits<int32_t>::max()};
}

}  // namespace tandem::rollout
