#include "common/tokenizer/observation_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {
namespace {

using nlohmann::ordered_json;

// Stands for a turn, to find what the template writes after one.
constexpr char kMark[] = "TurnOfThePolicy";

std::string Shown(absl::string_view text, size_t at) {
  constexpr size_t kBefore = 20;
  constexpr size_t kAfter = 40;
  const size_t begin = at - std::min(at, kBefore);
  if (at >= text.size())
    return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(begin)), "\" and its end");
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(begin, at - begin + kAfter)), "\"");
}

// Where `text`, expected to begin with `beginning`, does not.
std::optional<std::string> Mismatch(absl::string_view beginning, absl::string_view text,
                                    absl::string_view when) {
  if (absl::StartsWith(text, beginning)) return std::nullopt;
  const size_t at =
      std::mismatch(beginning.begin(), beginning.end(), text.begin(), text.end()).first -
      beginning.begin();
  return absl::StrCat("the chat template rewrites the past when ", when, ": at byte ", at,
                      " expected ", Shown(beginning, at), ", found ", Shown(text, at));
}

}  // namespace

absl::StatusOr<ObservationText> RenderObservation(const ordered_json& conversation,
                                                  const ordered_json& observation,
                                                  absl::string_view so_far,
                                                  absl::string_view end_token, ChatOptions options,
                                                  const Tokenizer& tokenizer) {
  options.add_generation_prompt = false;
  ASSIGN_OR_RETURN(const std::string with_turn, tokenizer.RenderChat(conversation, options));
  ordered_json marked = conversation;
  marked.back()["content"] = kMark;
  const bool has_calls = marked.back().erase("tool_calls") > 0;  // what follows the mark is END
  ASSIGN_OR_RETURN(const std::string with_mark, tokenizer.RenderChat(marked, options));
  ordered_json all = conversation;
  for (const ordered_json& message : observation) all.push_back(message);
  options.add_generation_prompt = true;
  ObservationText out;
  ASSIGN_OR_RETURN(out.with_all, tokenizer.RenderChat(all, options));

  out.mismatch = Mismatch(so_far, with_turn, "it adds the policy's turn");
  if (out.mismatch.has_value()) return out;
  out.mismatch = Mismatch(with_turn, out.with_all, "it adds the observation");
  if (out.mismatch.has_value()) return out;
  const size_t mark = with_mark.rfind(kMark);
  if (mark == std::string::npos) {
    return absl::InvalidArgumentError(
        "the chat template leaves out the content of an assistant's message");
  }
  absl::string_view end =
      absl::string_view(with_mark).substr(mark + absl::string_view(kMark).size());
  // The policy ended its calls with the template's own token for that.
  if (has_calls && !end_token.empty() && !absl::EndsWith(with_turn, end)) {
    const size_t ended = absl::string_view(with_turn).rfind(end_token);
    if (ended != absl::string_view::npos && ended >= so_far.size()) {
      end = absl::string_view(with_turn).substr(ended);
    }
  }
  if (!absl::EndsWith(with_turn, end)) {
    out.mismatch = absl::StrCat(
        "the chat template ends a turn with ", Shown(end, 0), ", but the policy's with ",
        Shown(with_turn, with_turn.size() - std::min(with_turn.size(), end.size())));
    return out;
  }
  absl::ConsumePrefix(&end, end_token);
  out.text = absl::StrCat(end, absl::string_view(out.with_all).substr(with_turn.size()));
  return out;
}

}  // namespace tandem::tokenizer
