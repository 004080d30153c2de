// regex: 1 if the completion contains a match of the pattern (PCRE2): the option's or, without it,
// the row's answer. An option with a group: 1 if group 1 of the first match equals the row's
// answer, except for surrounding white space.
//
// Bounds the work of each search, so that no pattern or completion can hang a run: a search that
// reaches the bound counts as not found. The bound is a count, not a time, so that the same input
// has the same reward on every machine.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/reward/code_points.h"
#include "tools/tandem/reward/group_pattern.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

constexpr size_t kMaxPatternBytes = 16 << 10;
// Items tried plus characters passed: about a second of work at most, and a thousand times what an
// ordinary pattern needs.
constexpr int64_t kMaxSearchWork = 50'000'000;
constexpr uint32_t kMaxHeapKibibytes = 64 << 10;

using Code = std::shared_ptr<pcre2_code>;

std::string ErrorText(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof(text)) < 0) return absl::StrCat("error ", error);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Units(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

absl::StatusOr<Code> Compile(const std::string& pattern, const char* field, uint32_t options = 0) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": expected a pattern of at most ",
                                                   kMaxPatternBytes, " bytes, found ",
                                                   pattern.size()));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Callouts before every item count the work. PCRE2's own match limit restarts at each position
  // of the text, so it bounds nothing for a long one.
  pcre2_code* code =
      pcre2_compile(Units(pattern), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_AUTO_CALLOUT | options,
                    &error, &offset, nullptr);
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ": expected a PCRE2 pattern; at byte ", offset, ": ", ErrorText(error),
                     "; found \"", absl::Utf8SafeCHexEscape(pattern.substr(0, 80)), "\""));
  }
  return Code(code, [](pcre2_code* c) { pcre2_code_free(c); });
}

struct Work {
  int64_t done = 0;
  size_t position = 0;
};

// Called by PCRE2 before each item of the pattern; a positive result would only backtrack,
// a negative one ends the search.
int CountWork(pcre2_callout_block* block, void* data) {
  Work* work = static_cast<Work*>(data);
  const size_t now = block->current_position;
  work->done +=
      1 + static_cast<int64_t>(now > work->position ? now - work->position : work->position - now);
  work->position = now;
  return work->done > kMaxSearchWork ? PCRE2_ERROR_CALLOUT : 0;
}

int NumGroups(const pcre2_code* code) {
  uint32_t count = 0;
  pcre2_pattern_info(code, PCRE2_INFO_CAPTURECOUNT, &count);
  return static_cast<int>(count);
}

// The first match of a search.
struct Match {
  bool is_found = false;
  std::string group;  // group 1; empty if it took no part in the match
};

absl::StatusOr<Match> Search(const pcre2_code* code, const std::string& text) {
  struct Free {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  // Two pairs of offsets: the match and group 1.
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(2, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  if (match == nullptr || context == nullptr) {
    return absl::ResourceExhaustedError("regex: no memory for a search");
  }
  Work work;
  pcre2_set_callout(context.get(), CountWork, &work);
  pcre2_set_heap_limit(context.get(), kMaxHeapKibibytes);
  const int found = pcre2_match(code, Units(text), text.size(), 0, 0, match.get(), context.get());
  // 0: a match with more groups than the two pairs of offsets hold. Negative: no match, or the
  // model's text reached a limit, which counts as no match.
  Match out;
  out.is_found = found >= 0;
  if (found == 0 || found > 1) {
    const PCRE2_SIZE* const offsets = pcre2_get_ovector_pointer(match.get());
    if (offsets[2] != PCRE2_UNSET) out.group = text.substr(offsets[2], offsets[3] - offsets[2]);
  }
  return out;
}

// A row's answer as a pattern.
absl::StatusOr<Code> CompileAnswer(const std::string& answer) {
  if (answer.empty()) {
    return absl::InvalidArgumentError(
        "answer: expected a PCRE2 pattern, found an empty answer, which matches everywhere; "
        "fix the row or set reward.pattern");
  }
  return Compile(answer, "answer");
}

absl::StatusOr<RewardFn> MakeRegex(const RewardOptions& options) {
  if (options.pattern.empty()) {
    return RewardFn([](const RewardInput& input) -> absl::StatusOr<double> {
      ASSIGN_OR_RETURN(const Code code, CompileAnswer(input.answer));
      ASSIGN_OR_RETURN(const Match match, Search(code.get(), input.completion));
      return match.is_found ? 1.0 : 0.0;
    });
  }
  ASSIGN_OR_RETURN(Code code, Compile(options.pattern, "reward.pattern"));
  return RewardFn([code = std::move(code)](const RewardInput& input) -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(const Match match, Search(code.get(), input.completion));
    if (!match.is_found) return 0.0;
    if (NumGroups(code.get()) == 0 || input.answer.empty()) return 1.0;
    return Trimmed(match.group) == Trimmed(input.answer) ? 1.0 : 0.0;
  });
}

bool RegexNeedsAnswer(const RewardOptions& options) {
  if (options.pattern.empty()) return true;
  const absl::StatusOr<Code> code = Compile(options.pattern, "reward.pattern");
  return code.ok() && NumGroups(code->get()) > 0;
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
  const absl::StatusOr<Code> code =
      Compile(absl::StrCat("\\A(?:", *group, ")\\z"), "reward.pattern",
              PCRE2_CASELESS | PCRE2_DOTALL | PCRE2_MULTILINE | PCRE2_DUPNAMES);
  if (!code.ok()) return [](const std::string&) { return true; };
  return [code = *code](const std::string& answer) {
    const absl::string_view text = absl::StripAsciiWhitespace(answer);
    for (const char* before : {"", " ", "\n"}) {
      for (const char* after : {"", " ", "\n"}) {
        const auto match = Search(code.get(), absl::StrCat(before, text, after));
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
