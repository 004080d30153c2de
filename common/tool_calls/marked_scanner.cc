#include "common/tool_calls/marked_scanner.h"

namespace tandem::tool_calls {

Found MarkedScanner::Next(absl::string_view text, bool ended) {
  if (!in_call_) {
    const MarkPlace place = FindMark(text, marks_, ended);
    if (place.begin > 0) return Found::Content(place.begin);
    if (!place.which.has_value()) return Found::NeedsMore();
    in_call_ = true;
    which_ = *place.which;
    Begin();
  }
  // What is read does not depend on how much more is there.
  const absl::string_view window = text.substr(0, kMaxCallBytes);
  const bool all = ended && window.size() == text.size();
  Found found = ReadCall(window, which_, all);
  if (found.kind == Found::Kind::kNeedsMore) {
    if (window.size() == kMaxCallBytes) {
      found = Bad("expected a call of at most 1 MiB", kMaxCallBytes);
    } else if (ended) {
      found = Bad("the answer ends within a call", window.size());
    } else {
      return found;
    }
  }
  in_call_ = false;
  if (found.kind == Found::Kind::kMalformed) found.size = marks_[which_].size();
  return found;
}

}  // namespace tandem::tool_calls
