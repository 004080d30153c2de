// Rewards that compare texts; reward.h defines them.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_
#define TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_

#include "absl/status/statusor.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

absl::StatusOr<double> ExactMatchReward(const RewardInput& input);

// Returns k / n: n is the number of the answer's code points plus its end, k the length of the
// common prefix with the completion.
absl::StatusOr<double> PrefixMatchReward(const RewardInput& input);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_TEXT_REWARDS_H_
