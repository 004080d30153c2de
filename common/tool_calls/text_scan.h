// Parts of a scanner: marks in text that still grows, and where a JSON value ends.
#ifndef TANDEM_COMMON_TOOL_CALLS_TEXT_SCAN_H_
#define TANDEM_COMMON_TOOL_CALLS_TEXT_SCAN_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::tool_calls {

using Marks = std::vector<absl::string_view>;

// The first of `marks` in the text: where it begins, and which. Without one, `begin` is where the
// last bytes that may still become one begin, the text's end if there are none or it has ended.
struct MarkPlace {
  size_t begin = 0;
  std::optional<size_t> which;
};
MarkPlace FindMark(absl::string_view text, const Marks& marks, bool ended);

bool IsSpace(char c);
absl::string_view Trim(absl::string_view text);

enum class Match { kYes, kNo, kMore };

// Reads text that still grows, from `at` on. The position survives the text: keep it between calls.
class Cursor {
 public:
  Cursor(absl::string_view text, bool ended, size_t& at) : text_(text), ended_(ended), at_(at) {}

  void SkipSpace() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  }
  // Whether the mark stands here; passes it if so. kMore while that is open.
  Match Take(absl::string_view mark);
  // The text up to `mark`, and passes both; `searched` (0 at first) saves looking twice. kMore while
  // the mark is not there.
  Match TakeUntil(absl::string_view mark, size_t& searched, absl::string_view& out);

  bool AtEnd() const { return at_ >= text_.size(); }
  bool ended() const { return ended_; }
  size_t at() const { return at_; }
  absl::string_view rest() const { return text_.substr(at_); }

 private:
  const absl::string_view text_;
  const bool ended_;
  size_t& at_;
};

// Finds the end of a JSON object or array by its brackets and strings; checks nothing else.
class JsonSpan {
 public:
  enum class State { kMore, kDone, kBad };

  // `text` begins with the value; call again with more of it.
  State Scan(absl::string_view text);

  size_t size() const { return at_; }  // of the value once done; else where the scan stands
  const char* problem() const { return problem_; }

 private:
  size_t at_ = 0;
  int depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  const char* problem_ = "";
};

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_TEXT_SCAN_H_
