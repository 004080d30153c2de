// Hermes, Qwen2.5 and Qwen3:
//
//   <tool_call>
//   {"name": "f", "arguments": {"x": 1}}
//   </tool_call>
#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/marked_scanner.h"

namespace tandem::tool_calls {
namespace {

class HermesScanner final : public MarkedScanner {
  static constexpr absl::string_view kBegin = "<tool_call>";
  static constexpr absl::string_view kEnd = "</tool_call>";

 public:
  HermesScanner() : MarkedScanner({kBegin}) {}

 private:
  void Begin() override {
    json_begin_ = json_end_ = 0;
    span_ = JsonSpan();
  }

  Found ReadCall(absl::string_view text, size_t /*which*/, bool ended) override {
    if (json_begin_ == 0) {
      size_t at = kBegin.size();
      while (at < text.size() && IsSpace(text[at])) ++at;
      if (at == text.size()) return Found::NeedsMore();
      json_begin_ = at;
    }
    if (json_end_ == 0) {
      switch (span_.Scan(text.substr(json_begin_))) {
        case JsonSpan::State::kMore:
          return Found::NeedsMore();
        case JsonSpan::State::kBad:
          return Bad(span_.problem(), json_begin_ + span_.size());
        case JsonSpan::State::kDone:
          json_end_ = json_begin_ + span_.size();
      }
    }
    size_t at = json_end_;
    Cursor cursor(text, ended, at);
    cursor.SkipSpace();
    // A complete call may lack its end where the answer ends.
    const bool cut = ended && cursor.AtEnd();
    const Match end = cut ? Match::kYes : cursor.Take(kEnd);
    if (end == Match::kMore) return Found::NeedsMore();
    if (end == Match::kNo) return Bad(absl::StrCat("expected ", kEnd, " behind the call"), at);
    absl::StatusOr<ToolCall> call =
        ReadCallObject(text.substr(json_begin_, json_end_ - json_begin_));
    if (!call.ok()) return Bad(std::string(call.status().message()), json_begin_);
    return Found::Calls(at, {*std::move(call)});
  }

  size_t json_begin_ = 0;  // 0: not there yet
  size_t json_end_ = 0;
  JsonSpan span_;
};

}  // namespace

const Format& Hermes() {
  static const auto& format = *new Format{
      .name = "hermes",
      .template_texts = {{"<tool_call>", "arguments"}},
      .make_scanner = [](const Schemas&) -> std::unique_ptr<Scanner> {
        return std::make_unique<HermesScanner>();
      },
      .forced_text =
          [](absl::string_view function) {
            return function.empty()
                       ? std::string("<tool_call>\n{\"name\": \"")
                       : absl::StrCat("<tool_call>\n{\"name\": \"", function, "\", \"arguments\":");
          }};
  return format;
}

}  // namespace tandem::tool_calls
