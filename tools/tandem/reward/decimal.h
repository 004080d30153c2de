// Decimal: parses numbers as people write them and compares them exactly, without floating point.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_
#define TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::reward {

// A decimal number in normal form, so that equal values are equal strings: "-1000.5" for
// "-1,000.50", "0" for "-0.0". Exponents are expanded.
using Decimal = std::string;

// Returns the last number of a text; nullopt if it has none. A number is
//   - digits, optionally in groups of three separated by "," "{,}" ",\!" "\," or a narrow space,
//     with an optional fraction ("3.50", ".5") and exponent ("1.5e3"); a period or comma after it
//     belongs to the sentence;
//   - with an optional sign ("-5", "-$5", "$-5", U+2212), unless a digit, a letter or a closing
//     bracket precedes the sign, as in "16-3" and "(a)-3".
// Ignores what follows (%, units, currency). Linear in the text.
std::optional<Decimal> LastNumber(absl::string_view text);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_DECIMAL_H_
