// exact_match: 1 if completion and answer are equal except for surrounding white space.
#include <algorithm>
#include <vector>

#include "absl/strings/string_view.h"
#include "tools/tandem/reward/code_points.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

// Unicode's White_Space.
bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::vector<char32_t> Trimmed(absl::string_view text) {
  std::vector<char32_t> points = CodePoints(text);
  while (!points.empty() && IsSpace(points.back())) points.pop_back();
  points.erase(points.begin(), std::find_if_not(points.begin(), points.end(), IsSpace));
  return points;
}

absl::StatusOr<double> ExactMatch(const RewardInput& input) {
  return Trimmed(input.completion) == Trimmed(input.answer) ? 1.0 : 0.0;
}

}  // namespace

const RewardKind kExactMatchReward = {
    .name = "exact_match",
    .make = [](const RewardOptions&) -> absl::StatusOr<RewardFn> { return RewardFn(ExactMatch); }};

}  // namespace tandem::reward
