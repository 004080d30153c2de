// Generalized advantage estimation (1506.02438); verl's gae.
//
//   GaeAdvantages one = GeneralizedAdvantages(values, token_rewards, 1.0, 0.95);
//   ...                                     // whitened over the batch: whitening.h
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_GAE_ADVANTAGES_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_GAE_ADVANTAGES_H_

#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

struct GaeAdvantages {
  std::vector<double> advantages;
  std::vector<double> returns;  // advantages + values, before whitening: what the critic is to say
};

// Over the trained-on tokens of one sequence, values[t] being the critic's before token t is known:
//   delta_t = reward_t + gamma * value_{t+1} - value_t,  advantage_t = delta_t + gamma * lam *
//   advantage_{t+1},
// both 0 after the last token. values and token_rewards are of one length.
GaeAdvantages GeneralizedAdvantages(absl::Span<const float> values,
                                    absl::Span<const double> token_rewards, double gamma,
                                    double lam);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_GAE_ADVANTAGES_H_
