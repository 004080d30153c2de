// Mistral, in two forms; several calls are one list, or one mark each:
//
//   [TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}, "id": "abcdefghi"}]
//   [TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{"x": 1}
//
// The newer form may lack [CALL_ID] with its id, and [ARGS].
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/marked_scanner.h"

namespace tandem::tool_calls {
namespace {

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.' ||
         c == ':' || c == '/';
}

class MistralScanner final : public MarkedScanner {
  static constexpr absl::string_view kBegin = "[TOOL_CALLS]";
  static constexpr absl::string_view kId = "[CALL_ID]";
  static constexpr absl::string_view kArguments = "[ARGS]";

 public:
  MistralScanner() : MarkedScanner({kBegin}) {}

 private:
  void Begin() override {
    json_begin_ = 0;
    call_ = ToolCall();
    span_ = JsonSpan();
  }

  Found ReadCall(absl::string_view text, size_t /*which*/, bool ended) override {
    if (json_begin_ == 0) {
      size_t at = kBegin.size();
      Cursor cursor(text, ended, at);
      cursor.SkipSpace();
      if (cursor.AtEnd()) return Found::NeedsMore();
      if (text[at] != '[') {
        // A name is short: reading it again costs little.
        const char* const problem = ReadName(text, ended, at);
        if (problem == nullptr) return Found::NeedsMore();
        if (*problem != '\0') return Bad(problem, at);
      }
      json_begin_ = at;
    }
    switch (span_.Scan(text.substr(json_begin_))) {
      case JsonSpan::State::kMore:
        return Found::NeedsMore();
      case JsonSpan::State::kBad:
        return Bad(span_.problem(), json_begin_ + span_.size());
      case JsonSpan::State::kDone:
        break;
    }
    const absl::string_view json = text.substr(json_begin_, span_.size());
    const size_t end = json_begin_ + span_.size();
    absl::Status status;
    if (call_.name.empty()) {
      absl::StatusOr<std::vector<ToolCall>> calls = ReadCallList(json);
      if (calls.ok()) return Found::Calls(end, *std::move(calls));
      status = calls.status();
    } else {
      status = CheckObject(json);
      call_.arguments = std::string(json);
      if (status.ok()) return Found::Calls(end, {std::move(call_)});
    }
    return Bad(std::string(status.message()), json_begin_);
  }

  // Passes the name and what stands before the arguments. Null while that is incomplete, a problem,
  // or "".
  const char* ReadName(absl::string_view text, bool ended, size_t& at) {
    const auto word = [&] {
      const size_t begin = at;
      while (at < text.size() && IsNameCharacter(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    Cursor cursor(text, ended, at);
    const size_t begin = at;
    const absl::string_view name = word();
    if (cursor.AtEnd() && name.size() <= kMaxNameBytes) return nullptr;
    if (!CheckName(name).ok()) {
      at = begin;
      return "expected a list of calls or a function's name";
    }
    absl::string_view id;
    const Match has_id = cursor.Take(kId);
    if (has_id == Match::kYes) {
      const size_t id_begin = at;
      id = word();
      if (cursor.AtEnd() && id.size() <= kMaxNameBytes) return nullptr;
      if (!CheckName(id).ok()) {
        at = id_begin;
        return "expected the call's id";
      }
    }
    const Match has_arguments = cursor.Take(kArguments);
    // "[" may begin either mark.
    if (has_id == Match::kMore || has_arguments == Match::kMore) return nullptr;
    cursor.SkipSpace();
    if (cursor.AtEnd()) return nullptr;
    if (text[at] != '{') return "expected [ARGS] and a JSON object behind the function's name";
    call_.name = std::string(name);
    call_.id = std::string(id);
    return "";
  }

  size_t json_begin_ = 0;  // 0: not there yet
  ToolCall call_;          // of the newer form
  JsonSpan span_;
};

}  // namespace

const Format& Mistral() {
  static const auto& format =
      *new Format{.name = "mistral",
                  .template_texts = {{"[TOOL_CALLS]"}},
                  .make_scanner = [](const Schemas&) -> std::unique_ptr<Scanner> {
                    return std::make_unique<MistralScanner>();
                  },
                  .short_ids = true};
  return format;
}

}  // namespace tandem::tool_calls
