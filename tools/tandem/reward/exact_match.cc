// exact_match: 1 if completion and answer are equal except for surrounding white space.
#include "tools/tandem/reward/code_points.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

absl::StatusOr<double> ExactMatch(const RewardInput& input) {
  return Trimmed(input.completion) == Trimmed(input.answer) ? 1.0 : 0.0;
}

}  // namespace

const RewardKind kExactMatchReward = {
    .name = "exact_match",
    .make = [](const RewardOptions&) -> absl::StatusOr<RewardFn> { return RewardFn(ExactMatch); }};

}  // namespace tandem::reward
