// Finds the part of a PCRE2 pattern that captures group 1, to ask what the group can be equal to.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_GROUP_PATTERN_H_
#define TANDEM_TOOLS_TANDEM_REWARD_GROUP_PATTERN_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::reward {

// Returns what stands between the parentheses of group 1: `\d+` of `answer is (?<n>\d+)`. None if
// there is no such group, or if the text means something else by itself: it refers to other parts
// of the pattern, looks at what stands around it, or is read with the option x.
std::optional<std::string> FirstGroupPattern(absl::string_view pattern);

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_GROUP_PATTERN_H_
