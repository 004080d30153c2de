// Qwen3-Coder:
//
//   <tool_call>
//   <function=f>
//   <parameter=x>
//   1
//   </parameter>
//   </function>
//   </tool_call>
//
// Models leave out the outer tags now and then.
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/tagged_scanner.h"

namespace tandem::tool_calls {
namespace {

class Qwen3CoderScanner final : public TaggedScanner {
  static constexpr absl::string_view kBegin = "<tool_call>";
  static constexpr absl::string_view kEnd = "</tool_call>";
  static constexpr absl::string_view kFunction = "<function=";
  static constexpr absl::string_view kFunctionEnd = "</function>";
  static constexpr absl::string_view kParameter = "<parameter=";
  static constexpr absl::string_view kParameterEnd = "</parameter>";
  static constexpr size_t kFunctionMark = 1;

 public:
  explicit Qwen3CoderScanner(const Schemas& schemas)
      : TaggedScanner({kBegin, kFunction}, schemas) {}

 private:
  enum class Step { kBegin, kName, kParameterOrEnd, kKey, kValue, kEnd };

  void BeginCall() override { step_ = Step::kBegin; }

  Outcome TakeStep(Cursor& cursor, absl::string_view text, size_t which) override {
    const bool bare = which == kFunctionMark;
    switch (step_) {
      case Step::kBegin: {
        if (!bare && at_ == 0) at_ = kBegin.size();
        cursor.SkipSpace();
        const Match match = cursor.Take(kFunction);
        if (match == Match::kYes) step_ = Step::kName;
        return {match, "expected <function="};
      }
      case Step::kName:
        return TakeName(cursor, text, name_, Step::kParameterOrEnd);
      case Step::kKey:
        return TakeName(cursor, text, key_, Step::kValue);
      case Step::kParameterOrEnd:
        return TakeParameterOrEnd(cursor);
      case Step::kValue: {
        absl::string_view value;
        const Match match = cursor.TakeUntil(kParameterEnd, searched_, value);
        if (match != Match::kYes) return {match};
        // The template puts a value on lines of its own.
        if (!value.empty() && value.front() == '\n') value.remove_prefix(1);
        if (!value.empty() && value.back() == '\n') value.remove_suffix(1);
        AddArgument(value);
        step_ = Step::kParameterOrEnd;
        return {};
      }
      case Step::kEnd: {
        if (bare) return Done();
        cursor.SkipSpace();
        if (cursor.ended() && cursor.AtEnd()) return Done();
        const Match match = cursor.Take(kEnd);
        if (match == Match::kYes) return Done();
        return {match, "expected </tool_call>"};
      }
    }
    return {};
  }

  Outcome TakeName(Cursor& cursor, absl::string_view text, std::string& out, Step next) {
    const size_t begin = at_;
    absl::string_view name;
    const Match match = cursor.TakeUntil(">", searched_, name);
    const bool is_long = match != Match::kYes && text.size() - begin > kMaxNameBytes;
    if (is_long || (match == Match::kYes && !CheckName(name).ok())) {
      return Malformed("expected a name and >", begin);
    }
    if (match != Match::kYes) return {match};
    out = std::string(name);
    step_ = next;
    return {};
  }

  Outcome TakeParameterOrEnd(Cursor& cursor) {
    cursor.SkipSpace();
    Match match = cursor.Take(kParameter);
    if (match == Match::kYes) {
      step_ = Step::kKey;
      return {};
    }
    if (const Match end = cursor.Take(kFunctionEnd); end != Match::kNo) {
      match = end;
      step_ = end == Match::kYes ? Step::kEnd : step_;
    }
    return {match, "expected <parameter= or </function>"};
  }

  Step step_ = Step::kBegin;
};

}  // namespace

const Format& Qwen3Coder() {
  static const auto& format = *new Format{
      .name = "qwen3_coder",
      .template_texts = {{"<tool_call>", "<function="}},
      .make_scanner = [](const Schemas& schemas) -> std::unique_ptr<Scanner> {
        return std::make_unique<Qwen3CoderScanner>(schemas);
      },
      .forced_text =
          [](absl::string_view function) {
            return function.empty() ? std::string("<tool_call>\n<function=")
                                    : absl::StrCat("<tool_call>\n<function=", function, ">\n");
          }};
  return format;
}

}  // namespace tandem::tool_calls
