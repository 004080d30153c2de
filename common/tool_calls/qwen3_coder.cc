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

class Qwen3CoderScanner final : public MarkedScanner {
  static constexpr absl::string_view kBegin = "<tool_call>";
  static constexpr absl::string_view kEnd = "</tool_call>";
  static constexpr absl::string_view kFunction = "<function=";
  static constexpr absl::string_view kFunctionEnd = "</function>";
  static constexpr absl::string_view kParameter = "<parameter=";
  static constexpr absl::string_view kParameterEnd = "</parameter>";
  static constexpr size_t kFunctionMark = 1;

 public:
  explicit Qwen3CoderScanner(const Schemas& schemas)
      : MarkedScanner({kBegin, kFunction}), schemas_(schemas) {}

 private:
  enum class Step { kBegin, kName, kParameterOrEnd, kKey, kValue, kEnd };

  void Begin() override {
    at_ = searched_ = 0;
    step_ = Step::kBegin;
    arguments_ = nlohmann::ordered_json::object();
    keys_ = io::OrderedKeys();
  }

  Found ReadCall(absl::string_view text, size_t which, bool ended) override {
    const bool bare = which == kFunctionMark;
    Cursor cursor(text, ended, at_);
    absl::string_view part;
    while (true) {
      Match match = Match::kYes;
      const char* problem = "";
      switch (step_) {
        case Step::kBegin:
          if (!bare && at_ == 0) at_ = kBegin.size();
          cursor.SkipSpace();
          match = cursor.Take(kFunction);
          problem = "expected <function=";
          step_ = match == Match::kYes ? Step::kName : step_;
          break;
        case Step::kName:
        case Step::kKey: {
          const size_t begin = at_;
          match = cursor.TakeUntil(">", searched_, part);
          const bool is_long = match != Match::kYes && text.size() - begin > kMaxNameBytes;
          if (is_long || (match == Match::kYes && !CheckName(part).ok())) {
            return Bad("expected a name and >", begin);
          }
          if (match != Match::kYes) break;
          (step_ == Step::kName ? name_ : key_) = std::string(part);
          step_ = step_ == Step::kName ? Step::kParameterOrEnd : Step::kValue;
          break;
        }
        case Step::kParameterOrEnd:
          cursor.SkipSpace();
          match = cursor.Take(kParameter);
          if (match == Match::kYes) {
            step_ = Step::kKey;
            break;
          }
          problem = "expected <parameter= or </function>";
          if (const Match end = cursor.Take(kFunctionEnd); end != Match::kNo) {
            match = end;
            step_ = end == Match::kYes ? Step::kEnd : step_;
          }
          break;
        case Step::kValue:
          match = cursor.TakeUntil(kParameterEnd, searched_, part);
          if (match != Match::kYes) break;
          // The template puts a value on lines of its own.
          if (!part.empty() && part.front() == '\n') part.remove_prefix(1);
          if (!part.empty() && part.back() == '\n') part.remove_suffix(1);
          keys_.ValueAt(arguments_, key_) = ArgumentValue(part, schemas_, name_, key_);
          step_ = Step::kParameterOrEnd;
          break;
        case Step::kEnd: {
          if (bare) return Done();
          cursor.SkipSpace();
          if (ended && cursor.AtEnd()) return Done();
          match = cursor.Take(kEnd);
          problem = "expected </tool_call>";
          if (match == Match::kYes) return Done();
          break;
        }
      }
      if (match == Match::kMore) return Found::NeedsMore();
      if (match == Match::kNo) {
        return ended && *problem == '\0' ? Found::NeedsMore() : Bad(problem, at_);
      }
    }
  }

  Found Done() const { return Found::Calls(at_, {{"", name_, io::JsonText(arguments_)}}); }

  const Schemas schemas_;
  Step step_ = Step::kBegin;
  size_t at_ = 0;
  size_t searched_ = 0;
  std::string name_;
  std::string key_;
  nlohmann::ordered_json arguments_;
  io::OrderedKeys keys_;
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
