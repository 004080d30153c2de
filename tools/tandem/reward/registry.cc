#include "tools/tandem/reward/registry.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/config/nearest.h"

namespace tandem::reward {
namespace {

// In alphabetical order of their names.
constexpr const RewardKind* kKinds[] = {
    &kExactMatchReward,
    &kGsm8kReward,
    &kPrefixMatchReward,
    &kRegexReward,
};

// Null: no such name.
const RewardKind* Find(absl::string_view name) {
  for (const RewardKind* kind : kKinds) {
    if (kind->name == name) return kind;
  }
  return nullptr;
}

bool NeedsAnswer(const RewardKind& kind, const RewardOptions& options) {
  return kind.needs_answer == nullptr || kind.needs_answer(options);
}

}  // namespace

absl::Status UnknownReward(absl::string_view name, const std::vector<std::string>& known,
                           absl::string_view key) {
  constexpr size_t kLongestShown = 64;  // a name is short; more of what was found would be noise
  const std::string nearest = config::Nearest(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected one of ", absl::StrJoin(known, ", "), "; found \"",
                   absl::Utf8SafeCHexEscape(name.substr(0, kLongestShown)), "\"",
                   nearest.empty() ? "" : absl::StrCat(", did you mean ", nearest, "?")));
}

std::vector<std::string> RewardNames() {
  std::vector<std::string> names;
  for (const RewardKind* kind : kKinds) names.push_back(kind->name);
  return names;
}

bool NeedsAnswer(absl::string_view name, const RewardOptions& options) {
  const RewardKind* const kind = Find(name);
  return kind != nullptr && NeedsAnswer(*kind, options);
}

AnswerCheck FindAnswerCheck(absl::string_view name, const RewardOptions& options) {
  const RewardKind* const kind = Find(name);
  if (kind == nullptr || kind->make_answer_check == nullptr || !NeedsAnswer(*kind, options)) {
    return [](const std::string&) { return absl::OkStatus(); };
  }
  return kind->make_answer_check(options);
}

AnswerTest FindAnswerTest(absl::string_view name, const RewardOptions& options) {
  const RewardKind* const kind = Find(name);
  if (kind == nullptr || kind->make_answer_test == nullptr || !NeedsAnswer(*kind, options)) {
    return [](const std::string&) { return true; };
  }
  return kind->make_answer_test(options);
}

absl::StatusOr<RewardFn> FindReward(absl::string_view name, const RewardOptions& options) {
  const RewardKind* const kind = Find(name);
  if (kind == nullptr) return UnknownReward(name, RewardNames());
  if (!options.pattern.empty() && !kind->has_pattern) {
    return absl::InvalidArgumentError(
        absl::StrCat("reward.pattern: expected none: reward ", name,
                     " uses no pattern; remove the key or set reward.name=regex"));
  }
  return kind->make(options);
}

}  // namespace tandem::reward
