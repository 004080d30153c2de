// gsm8k: 1 if the completion's final number equals the answer's, which follows "####" if the answer
// has one. Compares decimals: 3 = 3.0, 1,000 = 1000, $18 = 18 dollars.
#include "tools/tandem/reward/gsm8k.h"

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "tools/tandem/reward/registry.h"

namespace tandem::reward {
namespace {

constexpr absl::string_view kAnswerMark = "####";

// Whether the brace at `brace` belongs to a \boxed command; spaces may stand between.
bool OpensBox(absl::string_view text, size_t brace) {
  return absl::EndsWith(absl::StripTrailingAsciiWhitespace(text.substr(0, brace)), "\\boxed");
}

}  // namespace

std::optional<absl::string_view> LastBoxed(absl::string_view text) {
  struct Brace {
    size_t position;
    bool is_box;
  };
  std::vector<Brace> open;
  std::optional<absl::string_view> last;
  size_t last_position = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      // An escaped brace is text. A letter after a backslash begins a command and is no brace
      // anyway.
      ++i;
    } else if (text[i] == '{') {
      open.push_back({i, OpensBox(text, i)});
    } else if (text[i] == '}' && !open.empty()) {
      const Brace brace = open.back();
      open.pop_back();
      const absl::string_view content = text.substr(brace.position + 1, i - brace.position - 1);
      // With nested boxes the inner one counts: it begins last and closes first.
      if (brace.is_box && brace.position >= last_position &&
          !absl::StripAsciiWhitespace(content).empty()) {
        last = content;
        last_position = brace.position;
      }
    }
  }
  return last;
}

std::optional<Decimal> FinalNumber(absl::string_view text) {
  const std::optional<absl::string_view> boxed = LastBoxed(text);
  if (!boxed.has_value()) return LastNumber(text);
  if (absl::StrContains(*boxed, "frac")) return std::nullopt;
  return LastNumber(*boxed);
}

namespace {

absl::StatusOr<Decimal> NumberOfAnswer(absl::string_view answer) {
  const size_t mark = answer.rfind(kAnswerMark);
  if (mark != absl::string_view::npos) answer.remove_prefix(mark + kAnswerMark.size());
  const std::optional<Decimal> number = FinalNumber(answer);
  if (number.has_value()) return *number;
  constexpr size_t kLongest = 80;
  return absl::InvalidArgumentError(
      absl::StrCat("answer: expected a number, after \"####\" if it has that mark; found \"",
                   absl::Utf8SafeCHexEscape(answer.substr(0, kLongest)),
                   "\"; fix the row or choose another reward"));
}

absl::StatusOr<double> Gsm8k(const RewardInput& input) {
  ASSIGN_OR_RETURN(const Decimal expected, NumberOfAnswer(input.answer));
  return FinalNumber(input.completion) == expected ? 1.0 : 0.0;
}

}  // namespace

const RewardKind kGsm8kReward = {
    .name = "gsm8k",
    .make = [](const RewardOptions&) -> absl::StatusOr<RewardFn> { return RewardFn(Gsm8k); },
    .make_answer_check =
        [](const RewardOptions&) {
          return AnswerCheck(
              [](const std::string& answer) { return NumberOfAnswer(answer).status(); });
        }};

}  // namespace tandem::reward
