#include "common/config/nearest.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"

namespace tandem::config {
namespace {

constexpr size_t kLongestKey = 64;  // no key is longer; bounds the work on what a user sent

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({replace, last[j] + 1, now[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

std::string Nearest(absl::string_view text, const std::vector<std::string>& candidates) {
  if (text.empty() || text.size() > kLongestKey) return "";
  std::string nearest;
  size_t fewest = std::max<size_t>(1, (text.size() + 1) / 3) + 1;
  for (const std::string& candidate : candidates) {
    // Omitting a word at either end is a typo too: lr_schedule for schedule.
    const bool part = text.size() >= 4 && candidate.size() >= 4 &&
                      (absl::StrContains(candidate, text) || absl::StrContains(text, candidate));
    const size_t distance =
        part ? std::min<size_t>(EditDistance(text, candidate), 2) : EditDistance(text, candidate);
    if (distance < fewest) {
      fewest = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace tandem::config
