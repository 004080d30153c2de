// The built-in rewards: what a completion is worth, given its row's answer.
//
//   ASSIGN_OR_RETURN(reward::RewardFn gsm8k, reward::FindReward("gsm8k"));
//   ASSIGN_OR_RETURN(double one, gsm8k({.completion = "So 18.", .answer = "9 * 2\n#### 18"}));
//
//   gsm8k         1 where the completion's final number equals the answer's, which stands after
//                 "####" where there is one. The final number is the one in the last \boxed{...},
//                 else the last of the text. Compared as decimals: 3 = 3.0, 1,000 = 1000,
//                 $18 = 18 dollars.
//   exact_match   1 where completion and answer are the same but for white space around them.
//   prefix_match  the share of the answer, its end included, that is right from the start. The end
//                 is right where the completion stopped there (finish_reason "stop").
//   regex         1 where the pattern (PCRE2) is found in the completion. The pattern is the option
//                 or, without it, the row's answer.
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

// Safe to call from several threads, and the same for the same input, always. INVALID_ARGUMENT
// where the row's answer cannot be used (a pattern that is none, an answer without a number); what
// the model wrote is never an error.
using RewardFn = std::function<absl::StatusOr<double>(const RewardInput&)>;

struct RewardOptions {
  std::string pattern;  // of `regex`
};

// INVALID_ARGUMENT for an unknown name, listing the known ones and the nearest, and for an option
// that the reward cannot use.
absl::StatusOr<RewardFn> FindReward(absl::string_view name, const RewardOptions& options = {});

// In alphabetical order.
std::vector<std::string> RewardNames();

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_REWARD_H_
