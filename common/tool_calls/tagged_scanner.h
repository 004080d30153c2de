// TaggedScanner: for formats whose arguments stand one after another between tags, a function's name
// first.
#ifndef TANDEM_COMMON_TOOL_CALLS_TAGGED_SCANNER_H_
#define TANDEM_COMMON_TOOL_CALLS_TAGGED_SCANNER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "common/io/ordered_json.h"
#include "common/tool_calls/marked_scanner.h"
#include "common/tool_calls/text_scan.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

class TaggedScanner : public MarkedScanner {
 protected:
  TaggedScanner(Marks marks, const Schemas& schemas)
      : MarkedScanner(std::move(marks)), schemas_(schemas) {}

  // What one step through a call came to.
  struct Outcome {
    Match match = Match::kYes;
    // Why the call is malformed where nothing matches; empty: only the end of the text would say so.
    const char* problem = "";
    std::optional<Found> found;  // the call has ended, well or not
  };

  // Before the first step of a call.
  virtual void BeginCall() = 0;
  // Reads the next part of a call that begins with mark `which`.
  virtual Outcome TakeStep(Cursor& cursor, absl::string_view text, size_t which) = 0;

  // Adds the argument `key_`.
  void AddArgument(absl::string_view value);
  // The call ends where the cursor is.
  Outcome Done() const;
  static Outcome Malformed(const char* problem, size_t at) { return {.found = Bad(problem, at)}; }

  size_t at_ = 0;        // where the cursor is, from the front of the call
  size_t searched_ = 0;  // of Cursor::TakeUntil
  std::string name_;
  std::string key_;

 private:
  void Begin() final;
  Found ReadCall(absl::string_view text, size_t which, bool ended) final;

  const Schemas schemas_;
  nlohmann::ordered_json arguments_;
  io::OrderedKeys keys_;
};

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_TAGGED_SCANNER_H_
