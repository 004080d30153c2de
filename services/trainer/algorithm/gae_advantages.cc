#include "services/trainer/algorithm/gae_advantages.h"

#include <cstddef>

namespace tandem::trainer {

GaeAdvantages GeneralizedAdvantages(absl::Span<const float> values,
                                    absl::Span<const double> token_rewards, double gamma,
                                    double lam) {
  GaeAdvantages out;
  out.advantages.resize(values.size());
  out.returns.resize(values.size());
  double next_value = 0;
  double next_advantage = 0;
  for (size_t t = values.size(); t-- > 0;) {
    const double delta = token_rewards[t] + gamma * next_value - values[t];
    next_advantage = delta + gamma * lam * next_advantage;
    next_value = values[t];
    out.advantages[t] = next_advantage;
    out.returns[t] = next_advantage + values[t];
  }
  return out;
}

}  // namespace tandem::trainer
