// The built-in rewards by name (reward.name). Each file says what its reward compares:
// exact_match.cc, gsm8k.cc, prefix_match.cc, regex_reward.cc.
//
//   ASSIGN_OR_RETURN(reward::RewardFn gsm8k, reward::FindReward("gsm8k"));
//   ASSIGN_OR_RETURN(double one, gsm8k({.completion = "So 18.", .answer = "9 * 2\n#### 18"}));
#ifndef TANDEM_TOOLS_TANDEM_REWARD_REGISTRY_H_
#define TANDEM_TOOLS_TANDEM_REWARD_REGISTRY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

extern const RewardKind kExactMatchReward;
extern const RewardKind kGsm8kReward;
extern const RewardKind kPrefixMatchReward;
extern const RewardKind kRegexReward;

// INVALID_ARGUMENT for an unknown name, with the known names and the nearest, and for an option
// that the reward does not support.
absl::StatusOr<RewardFn> FindReward(absl::string_view name, const RewardOptions& options = {});

// Whether a reward of these names and options compares with the row's answer; false for an unknown
// name.
bool NeedsAnswer(absl::string_view name, const RewardOptions& options = {});

// Return the check and the test of answers for a reward of these names and options. For one that
// compares with none, and for an unknown name, they accept everything.
AnswerCheck FindAnswerCheck(absl::string_view name, const RewardOptions& options = {});
AnswerTest FindAnswerTest(absl::string_view name, const RewardOptions& options = {});

// In alphabetical order.
std::vector<std::string> RewardNames();

// The error for a name that is not one of `known`, which are `RewardNames()` and perhaps others.
// `key` is the configuration's.
absl::Status UnknownReward(absl::string_view name, const std::vector<std::string>& known,
                           absl::string_view key = "reward.name");

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REGISTRY_H_
