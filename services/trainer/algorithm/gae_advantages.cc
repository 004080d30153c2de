// Generalized advantage estimation (1506.02438); verl's gae.
#include <cstddef>
#include <utility>

#include "services/trainer/algorithm/advantages.h"

namespace tandem::trainer {
namespace {

// Over the trained-on tokens of one sequence, values[t] being the critic's before token t is known:
//   delta_t = reward_t + gamma * value_{t+1} - value_t
//   advantage_t = delta_t + gamma * lam * advantage_{t+1}
// both 0 after the last token. Sets the returns, advantages + values before whitening: what the
// critic learns to say.
TokenAdvantages GaeAdvantages(TrainingBatch& batch, const AdvantageOptions& options) {
  TokenAdvantages out;
  for (Sequence& sequence : batch.sequences) {
    const std::vector<float>& values = sequence.values;
    std::vector<double> advantages(values.size());
    sequence.returns.resize(values.size());
    double next_value = 0;
    double next_advantage = 0;
    for (size_t t = values.size(); t-- > 0;) {
      const double delta = sequence.token_rewards[t] + options.gamma * next_value - values[t];
      next_advantage = delta + options.gamma * options.lam * next_advantage;
      next_value = values[t];
      advantages[t] = next_advantage;
      sequence.returns[t] = static_cast<float>(next_advantage + values[t]);
    }
    out.push_back(std::move(advantages));
  }
  return out;
}

}  // namespace

const AdvantageKind kGaeAdvantages = {
    .estimator = config::v1::ADV_ESTIMATOR_GAE,
    .compute = GaeAdvantages,
    .is_whitened = true,
};

}  // namespace tandem::trainer
