// regex: 1 if the completion contains a match of the pattern (PCRE2): the option's or, without it,
// the row's answer. An option with a group: 1 if group 1 of the first match equals the row's
// answer, except for surrounding white space.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/reward/code_points.h"
#include "tools/tandem/reward/group_pattern.h"
#include "tools/tandem/reward/pattern.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

// A row's answer as a pattern.
absl::StatusOr<Pattern> CompileAnswer(const std::string& answer) {
  if (answer.empty()) {
    return absl::InvalidArgumentError(
        "answer: expected a PCRE2 pattern, found an empty answer, which matches everywhere; "
        "fix the row or set reward.pattern");
  }
  return Pattern::Compile(answer, "answer");
}

absl::StatusOr<RewardFn> MakeRegex(const RewardOptions& options) {
  if (options.pattern.empty()) {
    return RewardFn([](const RewardInput& input) -> absl::StatusOr<double> {
      ASSIGN_OR_RETURN(const Pattern pattern, CompileAnswer(input.answer));
      ASSIGN_OR_RETURN(const Pattern::Match match, pattern.Search(input.completion));
      return match.is_found ? 1.0 : 0.0;
    });
  }
  ASSIGN_OR_RETURN(Pattern pattern, Pattern::Compile(options.pattern, "reward.pattern"));
  return RewardFn(
      [pattern = std::move(pattern)](const RewardInput& input) -> absl::StatusOr<double> {
        ASSIGN_OR_RETURN(const Pattern::Match match, pattern.Search(input.completion));
        if (!match.is_found) return 0.0;
        if (pattern.num_groups() == 0 || input.answer.empty()) return 1.0;
        return Trimmed(match.group) == Trimmed(input.answer) ? 1.0 : 0.0;
      });
}

bool RegexNeedsAnswer(const RewardOptions& options) {
  if (options.pattern.empty()) return true;
  const auto pattern = Pattern::Compile(options.pattern, "reward.pattern");
  return pattern.ok() && pattern->num_groups() > 0;
}

AnswerCheck MakeRegexCheck(const RewardOptions& options) {
  if (options.pattern.empty()) {
    return [](const std::string& answer) { return CompileAnswer(answer).status(); };
  }
  return [](const std::string& answer) {
    if (!Trimmed(answer).empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "answer: expected text to compare group 1 of reward.pattern with, found none but white "
        "space; fix or remove the row");
  };
}

// Whether group 1 of the option can be equal to an answer.
AnswerTest MakeRegexTest(const RewardOptions& options) {
  const std::optional<std::string> group = FirstGroupPattern(options.pattern);
  if (!group.has_value()) return [](const std::string&) { return true; };
  // The pattern's own options stand outside the group: these allow all that they could.
  const absl::StatusOr<Pattern> whole =
      Pattern::Compile(absl::StrCat("\\A(?:", *group, ")\\z"), "reward.pattern",
                       PCRE2_CASELESS | PCRE2_DOTALL | PCRE2_MULTILINE | PCRE2_DUPNAMES);
  if (!whole.ok()) return [](const std::string&) { return true; };
  return [whole = *whole](const std::string& answer) {
    const absl::string_view text = absl::StripAsciiWhitespace(answer);
    for (const char* before : {"", " ", "\n"}) {
      for (const char* after : {"", " ", "\n"}) {
        const auto match = whole.Search(absl::StrCat(before, text, after));
        if (!match.ok() || match->is_found) return true;
      }
    }
    return false;
  };
}

}  // namespace

const RewardKind kRegexReward = {.name = "regex",
                                 .make = MakeRegex,
                                 .has_pattern = true,
                                 .needs_answer = RegexNeedsAnswer,
                                 .make_answer_check = MakeRegexCheck,
                                 .make_answer_test = MakeRegexTest};

}  // namespace tandem::reward
