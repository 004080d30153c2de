// Llama 3.1 to 3.3. An object, or several with ';' between them, is all of the answer, or follows a
// special token:
//
//   <|python_tag|>{"name": "f", "parameters": {"x": 1}}
//
// An object at the answer's start that has no name and parameters is an answer in JSON.
#include "absl/strings/str_cat.h"
#include "common/io/ordered_json.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {
namespace {

// Whether an object that is no call was meant as one.
bool LooksLikeCall(absl::string_view text) {
  return text.find("\"name\"") != absl::string_view::npos &&
         (text.find("\"parameters\"") != absl::string_view::npos ||
          text.find("\"arguments\"") != absl::string_view::npos);
}

class Llama3Scanner final : public Scanner {
  static constexpr absl::string_view kTag = "<|python_tag|>";

 public:
  Found Next(absl::string_view text, bool ended) override {
    if (!may_begin_) {
      const MarkPlace place = FindMark(text, {kTag}, ended);
      if (place.begin > 0) return Found::Content(place.begin);
      if (!place.which.has_value()) return Found::NeedsMore();
      may_begin_ = true;
    }
    // What is read does not depend on how much more is there.
    const absl::string_view window = text.substr(0, kMaxCallBytes);
    Found found = ReadCall(window, ended && window.size() == text.size());
    if (found.kind != Found::Kind::kNeedsMore) return found;
    if (window.size() == kMaxCallBytes) {
      return NoCall(window, window.size(), "expected a call of at most 1 MiB");
    }
    if (ended && !text.empty()) {
      return NoCall(window, window.size(), "the answer ends within a call");
    }
    return found;
  }

 private:
  // Where a call may begin: spaces, semicolons, the tag, and the object.
  Found ReadCall(absl::string_view text, bool ended) {
    size_t at = 0;
    while (at < text.size() && (IsSpace(text[at]) || text[at] == ';')) ++at;
    if (at == text.size()) {
      if (!ended || text.empty()) return Found::NeedsMore();
      return after_call_ ? Found::Markup(at) : Found::Content(at);
    }
    Cursor cursor(text, ended, at);
    const Match tag = cursor.Take(kTag);
    if (tag == Match::kMore) return Found::NeedsMore();
    tagged_ = tag == Match::kYes;
    object_begin_ = at;
    cursor.SkipSpace();
    if (cursor.AtEnd()) return Found::NeedsMore();
    if (text[at] != '{') {
      return NoCall(text.substr(0, at), at, "expected a JSON object behind <|python_tag|>");
    }
    const JsonSpan::State state = span_.Scan(text.substr(at));
    if (state == JsonSpan::State::kMore) return Found::NeedsMore();
    const size_t end = at + span_.size();
    if (state == JsonSpan::State::kBad) return NoCall(text.substr(0, end), end, span_.problem());
    const absl::string_view object = text.substr(at, span_.size());
    absl::StatusOr<ToolCall> call = ReadCallObject(object);
    if (!call.ok()) return NoCall(text.substr(0, end), at, call.status().message());
    if (!tagged_ && !LooksLikeCall(object)) return NoCall(object, at, "");
    span_ = JsonSpan();
    after_call_ = true;
    return Found::Calls(end, {*std::move(call)});
  }

  // Gives up `text`, which was read as a call. It is content, to be looked at again but for its
  // first part.
  Found NoCall(absl::string_view text, size_t at, absl::string_view problem) {
    const size_t size = object_begin_ > 0 ? object_begin_ : 1;
    const bool meant = tagged_ || LooksLikeCall(text);
    may_begin_ = after_call_ = tagged_ = false;
    object_begin_ = 0;
    span_ = JsonSpan();
    if (!meant || problem.empty()) return Found::Content(size);
    return Found::Malformed(size, std::string(problem), at);
  }

  bool may_begin_ = true;    // nothing but spaces since the start, or since a call
  bool after_call_ = false;  // nothing but spaces since a call
  bool tagged_ = false;
  size_t object_begin_ = 0;  // behind the tag, or where the object begins
  JsonSpan span_;
};

}  // namespace

const Format& Llama3() {
  static const auto& format = *new Format{
      .name = "llama3",
      .template_texts = {{"<|python_tag|>"}, {"Environment: ipython", "\"parameters\": "}},
      .make_scanner = [](const Schemas&) -> std::unique_ptr<Scanner> {
        return std::make_unique<Llama3Scanner>();
      },
      .forced_text =
          [](absl::string_view function) {
            return function.empty()
                       ? std::string("{\"name\": \"")
                       : absl::StrCat("{\"name\": \"", function, "\", \"parameters\":");
          }};
  return format;
}

}  // namespace tandem::tool_calls
