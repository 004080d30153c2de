// Returns-to-go of each token: the returns of REINFORCE++ (2501.03262) and, with gamma 1, of ReMax
// (2310.10505); verl's reinforce_plus_plus and remax.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_DISCOUNTED_RETURNS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_DISCOUNTED_RETURNS_H_

#include <vector>

#include "absl/types/span.h"

namespace tandem::trainer {

// G_t = reward_t + gamma * G_{t+1}, over the trained-on tokens of one sequence. Other tokens
// between them (prompts, environment) do not discount.
std::vector<double> DiscountedReturns(absl::Span<const double> token_rewards, double gamma);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_DISCOUNTED_RETURNS_H_
