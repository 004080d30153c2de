#include "common/model/router_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::model {
namespace {

using Score = RoutingSpec::Score;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Added to the sum of sigmoids, which could be 0.
constexpr float kLeastSum = 1e-20f;

float Rank(float logit) { return std::isnan(logit) ? -kInfinity : logit; }

bool HasNan(const float* values, int64_t count) {
  return std::any_of(values, values + count, [](float value) { return std::isnan(value); });
}

// Returns the indices of the `count` largest ranks, ascending.
void ChooseLargest(const float* ranks, int64_t num_ranks, int64_t count, int64_t* chosen) {
  int64_t found = 0;  // chosen[0, found): by descending rank
  for (int64_t e = 0; e < num_ranks; ++e) {
    const float rank = Rank(ranks[e]);
    if (found == count && !(rank > Rank(ranks[chosen[found - 1]]))) continue;
    int64_t place = found < count ? found++ : found - 1;
    for (; place > 0 && rank > Rank(ranks[chosen[place - 1]]); --place) {
      chosen[place] = chosen[place - 1];
    }
    chosen[place] = e;
  }
  std::sort(chosen, chosen + found);
}

// The softmax of a row: weight(e) = exp(logits[e] - largest) / sum.
struct RowSoftmax {
  float largest = -kInfinity;
  float sum = 0;

  RowSoftmax(const float* logits, int64_t num_experts) {
    for (int64_t e = 0; e < num_experts; ++e) largest = std::max(largest, Rank(logits[e]));
    for (int64_t e = 0; e < num_experts; ++e) sum += std::exp(logits[e] - largest);
  }
  // Of the chosen experts alone.
  RowSoftmax(const float* logits, const int64_t* chosen, int64_t top_k) {
    for (int64_t j = 0; j < top_k; ++j) largest = std::max(largest, Rank(logits[chosen[j]]));
    for (int64_t j = 0; j < top_k; ++j) sum += std::exp(logits[chosen[j]] - largest);
  }
  float Share(float logit) const { return std::exp(logit - largest) / sum; }
};

// The sum of the two largest, or the one of a group that has no more.
float SumOfTwo(const float* ranks, int64_t count) {
  float first = -kInfinity;
  float second = -kInfinity;
  for (int64_t i = 0; i < count; ++i) {
    const float rank = Rank(ranks[i]);
    if (rank > first) {
      second = first;
      first = rank;
    } else {
      second = std::max(second, rank);
    }
  }
  return count == 1 ? first : first + second;
}

}  // namespace

float SigmoidOf(float x) { return 1.0f / (1.0f + std::exp(-x)); }

RowRouter::RowRouter(const RoutingSpec& spec, int64_t num_experts, const float* correction_bias)
    : spec_(spec),
      num_experts_(num_experts),
      correction_bias_(correction_bias),
      is_damaged_(correction_bias != nullptr && HasNan(correction_bias, num_experts)) {
  if (correction_bias != nullptr || spec.score == Score::kSigmoid || spec.HasGroups()) {
    ranks_.resize(static_cast<size_t>(num_experts));
  }
  if (spec.HasGroups()) {
    group_ranks_.resize(static_cast<size_t>(spec.num_groups));
    groups_.resize(static_cast<size_t>(spec.top_groups));
  }
  if (spec.score == Score::kSparsemixer) {
    order_.resize(static_cast<size_t>(spec.top_k));
    is_taken_.resize(static_cast<size_t>(num_experts));
  }
}

const float* RowRouter::Ranks(const float* logits) {
  if (spec_.score == Score::kSigmoid) {
    for (int64_t e = 0; e < num_experts_; ++e) ranks_[e] = SigmoidOf(logits[e]);
  } else if (correction_bias_ == nullptr) {
    return logits;
  } else if (spec_.score == Score::kSoftmax) {
    const RowSoftmax softmax(logits, num_experts_);
    for (int64_t e = 0; e < num_experts_; ++e) ranks_[e] = softmax.Share(logits[e]);
  } else {
    std::copy(logits, logits + num_experts_, ranks_.begin());
  }
  for (int64_t e = 0; e < num_experts_ && correction_bias_ != nullptr; ++e) {
    ranks_[e] += correction_bias_[e];
  }
  return ranks_.data();
}

void RowRouter::ChooseGroups(const float* ranks) {
  const int64_t size = num_experts_ / spec_.num_groups;
  for (int64_t g = 0; g < spec_.num_groups; ++g) {
    const float* const of_group = ranks + g * size;
    if (spec_.group_score == RoutingSpec::GroupScore::kSumOfTwo) {
      group_ranks_[g] = SumOfTwo(of_group, size);
      continue;
    }
    group_ranks_[g] = -kInfinity;
    for (int64_t i = 0; i < size; ++i) {
      group_ranks_[g] = std::max(group_ranks_[g], Rank(of_group[i]));
    }
  }
  ChooseLargest(group_ranks_.data(), spec_.num_groups, spec_.top_groups, groups_.data());
}

void RowRouter::Choose(const float* logits, int64_t* chosen) {
  const float* const ranks = Ranks(logits);
  if (!spec_.HasGroups()) return ChooseLargest(ranks, num_experts_, spec_.top_k, chosen);
  ChooseGroups(ranks);
  // The experts of these groups, one group after another: ranks_ holds as many.
  const int64_t size = num_experts_ / spec_.num_groups;
  for (int64_t i = 0; i < spec_.top_groups; ++i) {
    const float* const group = ranks + groups_[i] * size;
    float* const place = ranks_.data() + i * size;
    // Groups only move to the front, so in place none is overwritten before it has moved.
    if (group != place) std::copy(group, group + size, place);
  }
  ChooseLargest(ranks_.data(), spec_.top_groups * size, spec_.top_k, chosen);
  for (int64_t j = 0; j < spec_.top_k; ++j) {
    chosen[j] = groups_[chosen[j] / size] * size + chosen[j] % size;
  }
}

void RowRouter::WeighBySigmoid(const float* logits, const int64_t* chosen, float* weights) const {
  float sum = kLeastSum;
  for (int64_t j = 0; j < spec_.top_k; ++j) {
    weights[j] = SigmoidOf(logits[chosen[j]]);
    sum += weights[j];
  }
  for (int64_t j = 0; j < spec_.top_k && spec_.normalize; ++j) weights[j] /= sum;
}

void RowRouter::WeighBySoftmax(const float* logits, const int64_t* chosen, float* weights) const {
  RowSoftmax softmax(logits, num_experts_);
  // A NaN of an expert that was not chosen shows here.
  if (spec_.normalize && !std::isnan(softmax.sum)) {
    softmax = RowSoftmax(logits, chosen, spec_.top_k);
  }
  for (int64_t j = 0; j < spec_.top_k; ++j) weights[j] = softmax.Share(logits[chosen[j]]);
}

template <typename Body>
void RowRouter::ForSparsemixer(const float* logits, const int64_t* chosen, const Body& body) {
  const auto limit = static_cast<float>(2 * spec_.jitter);
  for (int64_t j = 0; j < spec_.top_k; ++j) order_[j] = j;
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int64_t a, int64_t b) { return logits[chosen[a]] > logits[chosen[b]]; });
  std::fill(is_taken_.begin(), is_taken_.end(), false);
  for (const int64_t j : order_) {
    const float largest = logits[chosen[j]];
    body(j, [&](int64_t e) {
      // 0 / 0 is near.
      return !is_taken_[e] &&
             !((largest - logits[e]) / std::max(std::abs(logits[e]), largest) > limit);
    });
    is_taken_[chosen[j]] = true;
  }
}

void RowRouter::Weigh(const float* logits, const int64_t* chosen, float* weights) {
  if (is_damaged_ || HasNan(logits, num_experts_)) {
    std::fill(weights, weights + spec_.top_k, kNan);
    return;
  }
  switch (spec_.score) {
    case Score::kSoftmax:
      WeighBySoftmax(logits, chosen, weights);
      break;
    case Score::kSigmoid:
    case Score::kSigmoidOfChosen:
      WeighBySigmoid(logits, chosen, weights);
      break;
    case Score::kSparsemixer:
      ForSparsemixer(logits, chosen, [&](int64_t j, const auto& is_near) {
        float sum = 0;
        for (int64_t e = 0; e < num_experts_; ++e) {
          if (is_near(e)) sum += std::exp(logits[e] - logits[chosen[j]]);
        }
        weights[j] = 1.0f / sum;
      });
      break;
  }
  if (spec_.scale == 1.0) return;
  for (int64_t j = 0; j < spec_.top_k; ++j) weights[j] *= static_cast<float>(spec_.scale);
}

// With p the softmax over the experts that count, all or the chosen ones, and g the gradients of
// the weights: grad = p (g - sum of p g), where g is 0 for experts that were not chosen. The
// weights are p times the scale.
void RowRouter::WeighBackwardOfSoftmax(const float* logits, const int64_t* chosen,
                                       const float* weights, const float* grad,
                                       float* grad_logits) const {
  float sum = 0;
  for (int64_t j = 0; j < spec_.top_k; ++j) sum += weights[j] * grad[j];
  if (spec_.normalize) {
    std::fill(grad_logits, grad_logits + num_experts_, 0.0f);
  } else {
    const RowSoftmax softmax(logits, num_experts_);
    for (int64_t e = 0; e < num_experts_; ++e) grad_logits[e] = -softmax.Share(logits[e]) * sum;
  }
  const float mean = sum / static_cast<float>(spec_.scale);
  for (int64_t j = 0; j < spec_.top_k; ++j) grad_logits[chosen[j]] = weights[j] * (grad[j] - mean);
}

// s' = s (1 - s); with the sum S of the chosen: (s / S)' = s' / S (1 - s / S).
void RowRouter::WeighBackwardOfSigmoid(const float* logits, const int64_t* chosen,
                                       const float* weights, const float* grad,
                                       float* grad_logits) const {
  const auto scale = static_cast<float>(spec_.scale);
  float sum = 1.0f;
  float mean = 0.0f;  // of the gradients, by weight
  if (spec_.normalize) {
    sum = kLeastSum;
    for (int64_t j = 0; j < spec_.top_k; ++j) {
      sum += SigmoidOf(logits[chosen[j]]);
      mean += weights[j] * grad[j];
    }
    mean /= scale;
  }
  std::fill(grad_logits, grad_logits + num_experts_, 0.0f);
  for (int64_t j = 0; j < spec_.top_k; ++j) {
    const float score = SigmoidOf(logits[chosen[j]]);
    grad_logits[chosen[j]] = scale * (score * (1.0f - score)) / sum * (grad[j] - mean);
  }
}

void RowRouter::WeighBackward(const float* logits, const int64_t* chosen, const float* weights,
                              const float* grad, float* grad_logits) {
  switch (spec_.score) {
    case Score::kSoftmax:
      return WeighBackwardOfSoftmax(logits, chosen, weights, grad, grad_logits);
    case Score::kSigmoid:
    case Score::kSigmoidOfChosen:
      return WeighBackwardOfSigmoid(logits, chosen, weights, grad, grad_logits);
    case Score::kSparsemixer:
      break;
  }
  std::fill(grad_logits, grad_logits + num_experts_, 0.0f);
  const auto scale = static_cast<float>(spec_.scale);
  ForSparsemixer(logits, chosen, [&](int64_t j, const auto& is_near) {
    const float share = weights[j] / scale;  // of chosen[j]
    for (int64_t e = 0; e < num_experts_; ++e) {
      if (!is_near(e)) continue;
      const float other = std::exp(logits[e] - logits[chosen[j]]) * share;
      grad_logits[e] -= other * weights[j] * grad[j];
    }
    grad_logits[chosen[j]] += weights[j] * grad[j];
  });
}

}  // namespace tandem::model
