// The built-in rewards: each scores a completion, given its row's answer.
//
//   ASSIGN_OR_RETURN(reward::RewardFn gsm8k, reward::FindReward("gsm8k"));
//   ASSIGN_OR_RETURN(double one, gsm8k({.completion = "So 18.", .answer = "9 * 2\n#### 18"}));
//
//   gsm8k         1 if the completion's final number equals the answer's, which follows "####" if
//                 the answer has one. The final number is the one in the last \boxed{...}, else the
//                 last of the text. Compares decimals: 3 = 3.0, 1,000 = 1000, $18 = 18 dollars.
//   exact_match   1 if completion and answer are equal except for surrounding white space.
//   prefix_match  the share of the answer, including its end, that the completion matches from the
//                 start. The end matches if the completion stopped there (finish_reason "stop").
//   regex         1 if the completion contains a match of the pattern (PCRE2): the option's or,
//                 without it, the row's answer.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_
#define TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::reward {

struct RewardInput {
  std::string completion;
  std::string answer;
  std::string finish_reason = "stop";  // stop, length or aborted
};

// Thread-safe and deterministic. INVALID_ARGUMENT if the row's answer is unusable (an invalid
// pattern, an answer without a number); the model's text never causes an error.
using RewardFn = std::function<absl::StatusOr<double>(const RewardInput&)>;

struct RewardOptions {
  std::string pattern;  // of `regex`
};

// INVALID_ARGUMENT for an unknown name, with the known names and the nearest, and for an option
// that the reward does not support.
absl::StatusOr<RewardFn> FindReward(absl::string_view name, const RewardOptions& options = {});

// In alphabetical order.
std::vector<std::string> RewardNames();

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_
