#include "common/tool_calls/tagged_scanner.h"

#include "common/io/json_text.h"
#include "common/tool_calls/argument_value.h"

namespace tandem::tool_calls {

void TaggedScanner::AddArgument(absl::string_view value) {
  keys_.ValueAt(arguments_, key_) = ArgumentValue(value, schemas_, name_, key_);
}

TaggedScanner::Outcome TaggedScanner::Done() const {
  return {.found = Found::Calls(at_, {{"", name_, io::JsonText(arguments_)}})};
}

void TaggedScanner::Begin() {
  at_ = searched_ = 0;
  name_.clear();
  key_.clear();
  arguments_ = nlohmann::ordered_json::object();
  keys_ = io::OrderedKeys();
  BeginCall();
}

Found TaggedScanner::ReadCall(absl::string_view text, size_t which, bool ended) {
  Cursor cursor(text, ended, at_);
  while (true) {
    Outcome outcome = TakeStep(cursor, text, which);
    if (outcome.found.has_value()) return *std::move(outcome.found);
    if (outcome.match == Match::kMore) return Found::NeedsMore();
    if (outcome.match == Match::kNo) {
      return ended && *outcome.problem == '\0' ? Found::NeedsMore() : Bad(outcome.problem, at_);
    }
  }
}

}  // namespace tandem::tool_calls
