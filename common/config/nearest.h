// Suggests what a typo was meant to be.
#ifndef TANDEM_COMMON_CONFIG_NEAREST_H_
#define TANDEM_COMMON_CONFIG_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::config {

// Returns the candidate the fewest edits (insert, delete, replace, swap neighbours) away from
// `text`, or "" if even that one is further than a typo would be.
std::string Nearest(absl::string_view text, const std::vector<std::string>& candidates);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_NEAREST_H_
