// prefix_match: the share k / n of the answer that the completion matches from the start. n is the
// number of the answer's code points plus its end, k the length of the common prefix. The end
// matches if the completion stopped there (finish_reason "stop").
#include <algorithm>
#include <vector>

#include "tools/tandem/reward/code_points.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

constexpr char32_t kEnd = 0x110000;  // beyond the last code point

absl::StatusOr<double> PrefixMatch(const RewardInput& input) {
  std::vector<char32_t> want = CodePoints(input.answer);
  std::vector<char32_t> got = CodePoints(input.completion);
  want.push_back(kEnd);
  if (input.finish_reason == "stop") got.push_back(kEnd);
  const auto first_wrong = std::mismatch(want.begin(), want.end(), got.begin(), got.end()).first;
  return static_cast<double>(first_wrong - want.begin()) / static_cast<double>(want.size());
}

}  // namespace

const RewardKind kPrefixMatchReward = {
    .name = "prefix_match",
    .make = [](const RewardOptions&) -> absl::StatusOr<RewardFn> { return RewardFn(PrefixMatch); }};

}  // namespace tandem::reward
