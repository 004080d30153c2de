#include "services/trainer/algorithm/discounted_returns.h"

#include <cstddef>

namespace tandem::trainer {

std::vector<double> DiscountedReturns(absl::Span<const double> token_rewards, double gamma) {
  std::vector<double> returns(token_rewards.size());
  double later = 0;
  for (size_t t = token_rewards.size(); t-- > 0;) {
    later = token_rewards[t] + gamma * later;
    returns[t] = later;
  }
  return returns;
}

}  // namespace tandem::trainer
