// Scanner: what a format implements. It looks at the front of an answer's text and says what stands
// there.
#ifndef TANDEM_COMMON_TOOL_CALLS_SCANNER_H_
#define TANDEM_COMMON_TOOL_CALLS_SCANNER_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

struct Found {
  enum class Kind {
    kNeedsMore,  // cannot tell yet
    kContent,
    kReasoning,
    kMarkup,     // belongs to no text and no call
    kCalls,      // at least one
    kMalformed,  // content that looks like a call
  };
  Kind kind = Kind::kNeedsMore;
  size_t size = 0;  // bytes at the front that it is about; the rest is looked at again
  std::vector<ToolCall> calls;
  std::string problem;        // of a malformed call
  size_t problem_offset = 0;  // from the front

  static Found NeedsMore() { return {}; }
  static Found Content(size_t size) { return {.kind = Kind::kContent, .size = size}; }
  static Found Reasoning(size_t size) { return {.kind = Kind::kReasoning, .size = size}; }
  static Found Markup(size_t size) { return {.kind = Kind::kMarkup, .size = size}; }
  static Found Calls(size_t size, std::vector<ToolCall> calls) {
    return {.kind = Kind::kCalls, .size = size, .calls = std::move(calls)};
  }
  static Found Malformed(size_t size, std::string problem, size_t offset) {
    return {.kind = Kind::kMalformed,
            .size = size,
            .problem = std::move(problem),
            .problem_offset = offset};
  }
};

// Reads one answer.
class Scanner {
 public:
  virtual ~Scanner() = default;

  // `text` is what is not consumed yet; until something is found, later calls have the same text
  // with more behind it. `ended`: nothing follows. The result depends on the answer alone, not on
  // how much of it was there at each call: a finding that is right for some text is right for every
  // longer one. Only the size of content may differ. With `ended` and a text, finds something.
  virtual Found Next(absl::string_view text, bool ended) = 0;
};

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_SCANNER_H_
