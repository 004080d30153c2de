// GLM-4.5. Values are text for strings and JSON for all else:
//
//   <tool_call>f
//   <arg_key>x</arg_key>
//   <arg_value>1</arg_value>
//   </tool_call>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/tagged_scanner.h"

namespace tandem::tool_calls {
namespace {

class Glm45Scanner final : public TaggedScanner {
  static constexpr absl::string_view kBegin = "<tool_call>";
  static constexpr absl::string_view kEnd = "</tool_call>";
  static constexpr absl::string_view kKey = "<arg_key>";
  static constexpr absl::string_view kKeyEnd = "</arg_key>";
  static constexpr absl::string_view kValue = "<arg_value>";
  static constexpr absl::string_view kValueEnd = "</arg_value>";

 public:
  explicit Glm45Scanner(const Schemas& schemas) : TaggedScanner({kBegin}, schemas) {}

 private:
  enum class Step { kName, kKeyOrEnd, kKeyText, kValueBegin, kValueText };

  void BeginCall() override {
    at_ = kBegin.size();
    step_ = Step::kName;
  }

  Outcome TakeStep(Cursor& cursor, absl::string_view text, size_t /*which*/) override {
    switch (step_) {
      case Step::kName:
        return TakeName(cursor, text);
      case Step::kKeyOrEnd:
        return TakeKeyOrEnd(cursor);
      case Step::kKeyText: {
        absl::string_view key;
        const Match match = cursor.TakeUntil(kKeyEnd, searched_, key);
        if (match != Match::kYes) return {match};
        key_ = std::string(Trim(key));
        step_ = Step::kValueBegin;
        return {};
      }
      case Step::kValueBegin: {
        cursor.SkipSpace();
        const Match match = cursor.Take(kValue);
        if (match == Match::kYes) step_ = Step::kValueText;
        return {match, "expected <arg_value>"};
      }
      case Step::kValueText: {
        absl::string_view value;
        const Match match = cursor.TakeUntil(kValueEnd, searched_, value);
        if (match != Match::kYes) return {match};
        AddArgument(value);
        step_ = Step::kKeyOrEnd;
        return {};
      }
    }
    return {};
  }

  Outcome TakeName(Cursor& cursor, absl::string_view text) {
    cursor.SkipSpace();
    const size_t end = text.find_first_of(" \t\r\n<", at_);
    if (end == absl::string_view::npos) {
      if (cursor.rest().size() > kMaxNameBytes) return Malformed("expected a function's name", at_);
      return {Match::kMore};
    }
    name_ = std::string(text.substr(at_, end - at_));
    if (!CheckName(name_).ok()) return Malformed("expected a function's name", at_);
    at_ = end;
    step_ = Step::kKeyOrEnd;
    return {};
  }

  Outcome TakeKeyOrEnd(Cursor& cursor) {
    cursor.SkipSpace();
    Match match = cursor.Take(kKey);
    if (match == Match::kYes) {
      step_ = Step::kKeyText;
      return {};
    }
    const Match end = cursor.Take(kEnd);
    if (end == Match::kYes) return Done();
    if (end == Match::kMore) match = end;
    return {match, "expected <arg_key> or </tool_call>"};
  }

  Step step_ = Step::kName;
};

}  // namespace

const Format& Glm45() {
  static const auto& format =
      *new Format{.name = "glm45",
                  .template_texts = {{"<tool_call>", "<arg_key>"}},
                  .make_scanner = [](const Schemas& schemas) -> std::unique_ptr<Scanner> {
                    return std::make_unique<Glm45Scanner>(schemas);
                  },
                  .forced_text =
                      [](absl::string_view function) {
                        return function.empty() ? std::string("<tool_call>")
                                                : absl::StrCat("<tool_call>", function, "\n");
                      }};
  return format;
}

}  // namespace tandem::tool_calls
