// GLM-4.5. Values are text for strings and JSON for all else:
//
//   <tool_call>f
//   <arg_key>x</arg_key>
//   <arg_value>1</arg_value>
//   </tool_call>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/json_text.h"
#include "common/io/ordered_json.h"
#include "common/tool_calls/argument_value.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/marked_scanner.h"

namespace tandem::tool_calls {
namespace {

class Glm45Scanner final : public MarkedScanner {
  static constexpr absl::string_view kBegin = "<tool_call>";
  static constexpr absl::string_view kEnd = "</tool_call>";
  static constexpr absl::string_view kKey = "<arg_key>";
  static constexpr absl::string_view kKeyEnd = "</arg_key>";
  static constexpr absl::string_view kValue = "<arg_value>";
  static constexpr absl::string_view kValueEnd = "</arg_value>";

 public:
  explicit Glm45Scanner(const Schemas& schemas) : MarkedScanner({kBegin}), schemas_(schemas) {}

 private:
  enum class Step { kName, kKeyOrEnd, kKeyText, kValueBegin, kValueText };

  void Begin() override {
    at_ = kBegin.size();
    searched_ = 0;
    step_ = Step::kName;
    name_.clear();
    arguments_ = nlohmann::ordered_json::object();
    keys_ = io::OrderedKeys();
  }

  Found ReadCall(absl::string_view text, size_t /*which*/, bool ended) override {
    Cursor cursor(text, ended, at_);
    absl::string_view part;
    while (true) {
      Match match = Match::kYes;
      const char* problem = "";
      switch (step_) {
        case Step::kName: {
          cursor.SkipSpace();
          const size_t end = text.find_first_of(" \t\r\n<", at_);
          if (end == absl::string_view::npos) {
            if (cursor.rest().size() > kMaxNameBytes) return Bad("expected a function's name", at_);
            return Found::NeedsMore();
          }
          name_ = std::string(text.substr(at_, end - at_));
          if (!CheckName(name_).ok()) return Bad("expected a function's name", at_);
          at_ = end;
          step_ = Step::kKeyOrEnd;
          break;
        }
        case Step::kKeyOrEnd:
          cursor.SkipSpace();
          match = cursor.Take(kKey);
          if (match == Match::kYes) {
            step_ = Step::kKeyText;
            break;
          }
          problem = "expected <arg_key> or </tool_call>";
          if (const Match end = cursor.Take(kEnd); end == Match::kYes) {
            return Found::Calls(at_, {{"", name_, io::JsonText(arguments_)}});
          } else if (end == Match::kMore) {
            match = end;
          }
          break;
        case Step::kKeyText:
          match = cursor.TakeUntil(kKeyEnd, searched_, part);
          if (match != Match::kYes) break;
          key_ = std::string(Trim(part));
          step_ = Step::kValueBegin;
          break;
        case Step::kValueBegin:
          cursor.SkipSpace();
          match = cursor.Take(kValue);
          problem = "expected <arg_value>";
          step_ = match == Match::kYes ? Step::kValueText : step_;
          break;
        case Step::kValueText:
          match = cursor.TakeUntil(kValueEnd, searched_, part);
          if (match != Match::kYes) break;
          keys_.ValueAt(arguments_, key_) = ArgumentValue(part, schemas_, name_, key_);
          step_ = Step::kKeyOrEnd;
          break;
      }
      if (match == Match::kMore) return Found::NeedsMore();
      if (match == Match::kNo) {
        return ended && *problem == '\0' ? Found::NeedsMore() : Bad(problem, at_);
      }
    }
  }

  const Schemas schemas_;
  Step step_ = Step::kName;
  size_t at_ = 0;
  size_t searched_ = 0;
  std::string name_;
  std::string key_;
  nlohmann::ordered_json arguments_;
  io::OrderedKeys keys_;
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
