// Splits text, which need not be UTF-8, into the code points that rewards compare.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_CODE_POINTS_H_
#define TANDEM_TOOLS_TANDEM_REWARD_CODE_POINTS_H_

#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::reward {

// Returns one value per UTF-8 sequence, and one above every code point for each stray byte.
// Overlong forms and surrogates are decoded as they stand: only equality matters here.
std::vector<char32_t> CodePoints(absl::string_view text);

// The same without white space (Unicode's White_Space) at both ends.
std::vector<char32_t> Trimmed(absl::string_view text);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_CODE_POINTS_H_
