// The reward that searches a completion for a pattern; reward.h defines it.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_
#define TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

// With an empty `pattern` each row's answer is the pattern. INVALID_ARGUMENT, with the position in
// the pattern, if it is not valid PCRE2.
//
// Bounds the work of each search, so that no pattern or completion can hang a run: a search that
// reaches the bound counts as not found. The bound is a count, not a time, so that the same input
// has the same reward on every machine.
absl::StatusOr<RewardFn> MakeRegexReward(const std::string& pattern);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_
