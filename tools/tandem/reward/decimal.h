// Numbers as people write them, compared exactly: no floating point is involved.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_
#define TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::reward {

// A decimal number in its one normal form, so that equal values are equal texts: "-1000.5" for
// "-1,000.50", "0" for "-0.0". Exponents are resolved.
using Decimal = std::string;

// The last number of a text, nullopt where it has none. A number is
//   - digits, perhaps in groups of three parted by "," "{,}" ",\!" "\," or a narrow space, with
//     perhaps a fraction ("3.50", ".5") and an exponent ("1.5e3"); a period or comma after it is
//     the sentence's, not its own;
//   - a sign before it ("-5", "-$5", "$-5", U+2212) is its own unless a digit, a letter or a
//     closing bracket stands before the sign, as in "16-3" and "(a)-3".
// What follows (%, units, currency) does not count. Linear in the text.
std::optional<Decimal> LastNumber(absl::string_view text);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_
