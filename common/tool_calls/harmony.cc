// Harmony, of gpt-oss: messages in channels, of which the prompt has begun the first.
//
//   <|channel|>analysis<|message|>Thoughts.<|end|>
//   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": 1}<|call|>
//   <|start|>assistant<|channel|>final<|message|>The answer.<|return|>
//
// Analysis is reasoning; a message to a function is a call; all else is content.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {
namespace {

// The first three end a message, the others begin the next one.
const Marks& Boundaries() {
  static const auto& marks =
      *new Marks{"<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"};
  return marks;
}

// What stands behind `key` in a header, up to a space or a mark.
absl::string_view WordBehind(absl::string_view header, absl::string_view key) {
  const size_t found = header.find(key);
  if (found == absl::string_view::npos) return {};
  header.remove_prefix(found + key.size());
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

class HarmonyScanner final : public Scanner {
  static constexpr absl::string_view kMessage = "<|message|>";
  static constexpr absl::string_view kChannel = "<|channel|>";
  static constexpr absl::string_view kFunctions = "functions.";
  static constexpr absl::string_view kTo = "to=";
  static constexpr size_t kMaxHeaderBytes = 1024;
  static constexpr size_t kNumEnds = 3;

 public:
  Found Next(absl::string_view text, bool ended) override {
    while (true) {
      switch (state_) {
        case State::kStart: {
          // The recipient may come before the channel.
          size_t at = 0;
          Cursor cursor(text, ended, at);
          cursor.SkipSpace();
          const Match match = cursor.Take(kTo);
          if (match == Match::kMore) return Found::NeedsMore();
          state_ = match == Match::kYes ? State::kHeader : State::kContent;
          break;
        }
        case State::kHeader:
        case State::kCall:
          return ReadHeaderOrCall(text, ended);
        case State::kContent:
        case State::kReasoning: {
          const MarkPlace place = FindMark(text, Boundaries(), ended);
          if (place.begin > 0) {
            return state_ == State::kContent ? Found::Content(place.begin)
                                             : Found::Reasoning(place.begin);
          }
          if (!place.which.has_value()) return Found::NeedsMore();
          if (*place.which < kNumEnds) {
            state_ = State::kContent;
            return Found::Markup(Boundaries()[*place.which].size());
          }
          state_ = State::kHeader;
          break;
        }
      }
    }
  }

 private:
  enum class State { kStart, kHeader, kContent, kReasoning, kCall };

  Found ReadHeaderOrCall(absl::string_view text, bool ended) {
    // What is read does not depend on how much more is there.
    const absl::string_view window = text.substr(0, kMaxCallBytes);
    const bool all = ended && window.size() == text.size();
    Found found = state_ == State::kHeader ? ReadHeader(window, all) : ReadCall(window, all);
    if (found.kind != Found::Kind::kNeedsMore) return found;
    if (state_ == State::kCall && window.size() == kMaxCallBytes) {
      return NoCall(window.size(), "expected a call of at most 1 MiB", window.size());
    }
    return ended && !text.empty()
               ? NoCall(window.size(), "the answer ends within a call", window.size())
               : found;
  }

  Found ReadHeader(absl::string_view text, bool ended) {
    const size_t end = text.substr(0, kMaxHeaderBytes).find(kMessage);
    if (end == absl::string_view::npos) {
      if (text.size() < kMaxHeaderBytes && !ended) return Found::NeedsMore();
      // The first byte is content, so that the rest is looked at again.
      return NoCall(1, "expected <|message|> behind the header of a message", 0);
    }
    const size_t size = end + kMessage.size();
    const absl::string_view header = text.substr(0, end);
    const absl::string_view recipient = WordBehind(header, kTo);
    if (recipient.empty()) {
      state_ = WordBehind(header, kChannel) == "analysis" ? State::kReasoning : State::kContent;
      return Found::Markup(size);
    }
    if (recipient.substr(0, kFunctions.size()) != kFunctions) {
      return NoCall(size, absl::StrCat("expected a call of a function, found one of ", recipient),
                    0);
    }
    name_ = std::string(recipient.substr(kFunctions.size()));
    body_begin_ = size;
    searched_ = size;
    state_ = State::kCall;
    return ReadCall(text, ended);
  }

  Found ReadCall(absl::string_view text, bool ended) {
    const MarkPlace place = FindMark(text.substr(searched_), Boundaries(), ended);
    searched_ += place.begin;
    if (!place.which.has_value() && !ended) return Found::NeedsMore();
    absl::string_view body = Trim(text.substr(body_begin_, searched_ - body_begin_));
    if (body.empty()) body = "{}";
    size_t size = searched_;
    if (place.which.has_value() && *place.which < kNumEnds)
      size += Boundaries()[*place.which].size();
    absl::Status status = CheckName(name_);
    if (status.ok()) status = CheckObject(body);
    if (!status.ok()) return NoCall(size, std::string(status.message()), body_begin_);
    state_ = State::kContent;
    return Found::Calls(size, {{"", name_, std::string(body)}});
  }

  Found NoCall(size_t size, std::string problem, size_t at) {
    state_ = State::kContent;
    return Found::Malformed(size, std::move(problem), at);
  }

  State state_ = State::kStart;
  std::string name_;
  size_t body_begin_ = 0;
  size_t searched_ = 0;
};

}  // namespace

const Format& Harmony() {
  static const auto& format =
      *new Format{.name = "harmony",
                  .template_texts = {{"<|channel|>", "functions."}},
                  .make_scanner = [](const Schemas&) -> std::unique_ptr<Scanner> {
                    return std::make_unique<HarmonyScanner>();
                  }};
  return format;
}

}  // namespace tandem::tool_calls
