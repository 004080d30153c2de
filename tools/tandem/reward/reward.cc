#include "tools/tandem/reward/reward.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/tandem/reward/final_answer.h"
#include "tools/tandem/reward/regex_reward.h"
#include "tools/tandem/reward/text_rewards.h"

namespace tandem::reward {
namespace {

// Levenshtein distance; both are short.
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row.back();
}

absl::Status UnknownName(absl::string_view name) {
  constexpr size_t kLongest = 64;  // of what was found; more would be noise, and slow to compare
  const absl::string_view shown = name.substr(0, kLongest);
  const std::vector<std::string> names = RewardNames();
  const std::string& nearest =
      *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
        return EditDistance(shown, a) < EditDistance(shown, b);
      });
  // Beyond half of its letters the nearest name is not what was meant.
  const bool is_near = EditDistance(shown, nearest) <= nearest.size() / 2;
  return absl::InvalidArgumentError(
      absl::StrCat("reward.name: expected one of ", absl::StrJoin(names, ", "), "; found \"",
                   absl::Utf8SafeCHexEscape(shown), "\"",
                   is_near ? absl::StrCat(", did you mean ", nearest, "?") : ""));
}

}  // namespace

std::vector<std::string> RewardNames() { return {"exact_match", "gsm8k", "prefix_match", "regex"}; }

absl::StatusOr<RewardFn> FindReward(absl::string_view name, const RewardOptions& options) {
  if (name == "regex") return MakeRegexReward(options.pattern);
  if (!options.pattern.empty()) {
    if (name == "exact_match" || name == "gsm8k" || name == "prefix_match") {
      return absl::InvalidArgumentError(absl::StrCat(
          "reward.pattern: expected none for the reward ", name, "; only regex has a pattern"));
    }
  }
  if (name == "exact_match") return RewardFn(ExactMatchReward);
  if (name == "gsm8k") return RewardFn(FinalAnswerReward);
  if (name == "prefix_match") return RewardFn(PrefixMatchReward);
  return UnknownName(name);
}

}  // namespace tandem::reward
