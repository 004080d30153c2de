// MarkedScanner: for formats whose calls begin with a mark, anywhere in the text.
#ifndef TANDEM_COMMON_TOOL_CALLS_MARKED_SCANNER_H_
#define TANDEM_COMMON_TOOL_CALLS_MARKED_SCANNER_H_

#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/tool_calls/scanner.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {

// Of a malformed call, the mark alone is consumed: a call may begin right behind it.
class MarkedScanner : public Scanner {
 public:
  explicit MarkedScanner(Marks marks) : marks_(std::move(marks)) {}

  Found Next(absl::string_view text, bool ended) final;

 protected:
  // A call begins: forget the last one.
  virtual void Begin() = 0;
  // Reads the call at the front of `text`, which begins with mark `which`. Bad() for one that is
  // malformed; NeedsMore() while it is incomplete, also at the end.
  virtual Found ReadCall(absl::string_view text, size_t which, bool ended) = 0;

  // The call is malformed at byte `at` from the front of its text.
  static Found Bad(std::string problem, size_t at) {
    return Found::Malformed(0, std::move(problem), at);
  }

 private:
  const Marks marks_;
  bool in_call_ = false;
  size_t which_ = 0;
};

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_MARKED_SCANNER_H_
