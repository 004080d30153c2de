// The reward for worked answers that end in a number (GSM8K's form); reward.h says what it means.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_FINAL_ANSWER_H_
#define TANDEM_TOOLS_TANDEM_REWARD_FINAL_ANSWER_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/tandem/reward/decimal.h"
#include "tools/tandem/reward/reward.h"

namespace tandem::reward {

// The content of the last \boxed{...} that is closed and not blank; braces inside are matched, `\{`
// and `\}` are not braces. Linear in the text.
std::optional<absl::string_view> LastBoxed(absl::string_view text);

// What a completion gives as its answer. A box settles it, even one without a number or with a
// \frac, whose last number would be the denominator: nullopt then. Otherwise the text's last
// number.
std::optional<Decimal> FinalNumber(absl::string_view text);

absl::StatusOr<double> FinalAnswerReward(const RewardInput& input);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_FINAL_ANSWER_H_
