// Rewards that compare texts; reward.h says what each means.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_
#define TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_

#include "absl/status/statusor.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

absl::StatusOr<double> ExactMatchReward(const RewardInput& input);

// k / n, where n counts the answer's code points and its end, and k those of them, from the first
// on, that the completion has too.
absl::StatusOr<double> PrefixMatchReward(const RewardInput& input);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_
