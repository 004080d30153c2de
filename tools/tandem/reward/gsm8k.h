// The final number of a worked answer (GSM8K's format), which the reward gsm8k compares.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_GSM8K_H_
#define TANDEM_TOOLS_TANDEM_REWARD_GSM8K_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "tools/tandem/reward/decimal.h"

namespace tandem::reward {

// Returns the content of the last \boxed{...} that is closed and not blank; matches nested braces,
// `\{` and `\}` are not braces. Linear in the text.
std::optional<absl::string_view> LastBoxed(absl::string_view text);

// Returns the number that a completion gives as its answer: that of the last box, if there is one,
// and nullopt if the box has no number or a \frac, whose last number would be the denominator.
// Without a box, the text's last number.
std::optional<Decimal> FinalNumber(absl::string_view text);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_GSM8K_H_
