// DeepSeek. V3 and R1 write a type before the name, and a block of code; V3.1 does not:
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f
//   ```json
//   {"x": 1}
//   ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//
//   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"x": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_object.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/marked_scanner.h"

namespace tandem::tool_calls {
namespace {

class DeepSeekScanner final : public MarkedScanner {
  static constexpr absl::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
  static constexpr absl::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
  static constexpr absl::string_view kBegin = "<｜tool▁call▁begin｜>";
  static constexpr absl::string_view kEnd = "<｜tool▁call▁end｜>";
  static constexpr absl::string_view kSeparator = "<｜tool▁sep｜>";
  static constexpr absl::string_view kFence = "```";
  static constexpr size_t kCallsEndMark = 2;

 public:
  DeepSeekScanner() : MarkedScanner({kCallsBegin, kBegin, kCallsEnd}) {}

 private:
  void Begin() override {
    at_ = searched_ = json_begin_ = json_end_ = 0;
    step_ = Step::kBegin;
    fenced_ = false;
    call_ = ToolCall();
    span_ = JsonSpan();
  }

  Found ReadCall(absl::string_view text, size_t which, bool ended) override {
    if (which == kCallsEndMark) {
      return has_called_ ? Found::Markup(kCallsEnd.size()) : Found::Content(kCallsEnd.size());
    }
    Cursor cursor(text, ended, at_);
    absl::string_view part;
    while (true) {
      Match match = Match::kYes;
      const char* problem = nullptr;  // if the match is kNo
      switch (step_) {
        case Step::kBegin:
          if (which == 0 && at_ == 0) at_ = kCallsBegin.size();
          cursor.SkipSpace();
          match = cursor.Take(kBegin);
          problem = "expected <｜tool▁call▁begin｜>";
          step_ = match == Match::kYes ? Step::kHead : step_;
          break;
        case Step::kHead:
          match = TakeShort(cursor, kSeparator, part);
          problem = "expected a name or a type, and <｜tool▁sep｜>";
          if (match != Match::kYes) break;
          call_.name = std::string(Trim(part));
          step_ = Step::kBehindHead;
          break;
        case Step::kBehindHead:
          // An object means that the name stood before.
          cursor.SkipSpace();
          if (cursor.AtEnd()) return Found::NeedsMore();
          fenced_ = text[at_] != '{';
          step_ = fenced_ ? Step::kName : Step::kJson;
          break;
        case Step::kName:
          match = TakeShort(cursor, kFence, part);
          problem = "expected a name, and ```json";
          if (match != Match::kYes) break;
          call_.name = std::string(Trim(part));
          step_ = Step::kLanguage;
          break;
        case Step::kLanguage:
          match = cursor.Take("json");
          if (match == Match::kMore) return Found::NeedsMore();
          match = Match::kYes;  // the language may be left out
          cursor.SkipSpace();
          if (cursor.AtEnd()) return Found::NeedsMore();
          step_ = Step::kJson;
          break;
        case Step::kJson: {
          if (json_begin_ == 0) json_begin_ = at_;
          const JsonSpan::State state = span_.Scan(text.substr(json_begin_));
          if (state == JsonSpan::State::kMore) return Found::NeedsMore();
          if (state == JsonSpan::State::kBad) {
            return Bad(span_.problem(), json_begin_ + span_.size());
          }
          at_ = json_end_ = json_begin_ + span_.size();
          step_ = Step::kFenceEnd;
          break;
        }
        case Step::kFenceEnd:
          cursor.SkipSpace();
          if (cut(cursor)) return Finish(text);
          match = fenced_ ? cursor.Take(kFence) : Match::kYes;
          problem = "expected ``` behind the arguments";
          step_ = match == Match::kYes ? Step::kEnd : step_;
          break;
        case Step::kEnd:
          cursor.SkipSpace();
          if (cut(cursor)) return Finish(text);
          match = cursor.Take(kEnd);
          problem = "expected <｜tool▁call▁end｜> behind the arguments";
          if (match == Match::kYes) return Finish(text);
          break;
      }
      if (match == Match::kMore) return Found::NeedsMore();
      if (match == Match::kNo) {
        return ended && cursor.AtEnd() ? Found::NeedsMore() : Bad(problem, at_);
      }
    }
  }

  enum class Step { kBegin, kHead, kBehindHead, kName, kLanguage, kJson, kFenceEnd, kEnd };

  static bool cut(const Cursor& cursor) { return cursor.ended() && cursor.AtEnd(); }

  // Like TakeUntil(), for a name.
  Match TakeShort(Cursor& cursor, absl::string_view mark, absl::string_view& part) {
    const size_t begin = cursor.at();
    const Match match = cursor.TakeUntil(mark, searched_, part);
    const size_t longest = kMaxNameBytes + mark.size();
    if (match == Match::kYes) {
      if (part.size() <= kMaxNameBytes) return match;
      at_ = begin;
      return Match::kNo;
    }
    return cursor.rest().size() > longest ? Match::kNo : match;
  }

  Found Finish(absl::string_view text) {
    const absl::string_view json = text.substr(json_begin_, json_end_ - json_begin_);
    absl::Status status = CheckName(call_.name);
    if (status.ok()) status = CheckObject(json);
    if (!status.ok()) return Bad(std::string(status.message()), json_begin_);
    call_.arguments = std::string(json);
    has_called_ = true;
    return Found::Calls(at_, {std::move(call_)});
  }

  bool has_called_ = false;
  Step step_ = Step::kBegin;
  size_t at_ = 0;
  size_t searched_ = 0;
  bool fenced_ = false;
  size_t json_begin_ = 0;  // 0: not there yet
  size_t json_end_ = 0;
  ToolCall call_;
  JsonSpan span_;
};

}  // namespace

const Format& DeepSeek() {
  static const auto& format =
      *new Format{.name = "deepseek",
                  .template_texts = {{"<｜tool▁call▁begin｜>"}},
                  .make_scanner = [](const Schemas&) -> std::unique_ptr<Scanner> {
                    return std::make_unique<DeepSeekScanner>();
                  }};
  return format;
}

}  // namespace tandem::tool_calls
