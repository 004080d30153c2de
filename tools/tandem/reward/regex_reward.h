// The reward that searches a completion for a pattern; reward.h says what it means.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_
#define TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_

#include <string>

#include "absl/status/statusor.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

// With an empty `pattern` each row's answer is the pattern. INVALID_ARGUMENT, with the place in the
// pattern, where it is no PCRE2 pattern.
//
// The work of one search is counted and bounded, so that no pattern and no completion can hang a
// run: a search that is not done by then counts as not found. The bound is a count, not a time, so
// that the same input has the same reward on every machine.
absl::StatusOr<RewardFn> MakeRegexReward(const std::string& pattern);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REGEX_REWARD_H_
