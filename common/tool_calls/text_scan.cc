#include "common/tool_calls/text_scan.h"

#include <algorithm>

#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

absl::string_view Trim(absl::string_view text) {
  while (!text.empty() && IsSpace(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsSpace(text.back())) text.remove_suffix(1);
  return text;
}

MarkPlace FindMark(absl::string_view text, const Marks& marks, bool ended) {
  MarkPlace place{.begin = text.size()};
  for (size_t i = 0; i < marks.size(); ++i) {
    const size_t found = text.find(marks[i]);
    if (found >= place.begin) continue;
    place = {.begin = found, .which = i};
  }
  if (place.which.has_value() || ended) return place;
  for (const absl::string_view mark : marks) {
    for (size_t size = std::min(mark.size() - 1, text.size()); size > 0; --size) {
      if (text.substr(text.size() - size) != mark.substr(0, size)) continue;
      place.begin = std::min(place.begin, text.size() - size);
      break;
    }
  }
  return place;
}

Match Cursor::Take(absl::string_view mark) {
  const absl::string_view here = rest().substr(0, mark.size());
  if (here == mark) {
    at_ += mark.size();
    return Match::kYes;
  }
  return here == mark.substr(0, here.size()) && !ended_ ? Match::kMore : Match::kNo;
}

Match Cursor::TakeUntil(absl::string_view mark, size_t& searched, absl::string_view& out) {
  const size_t from = std::max(searched, at_);
  const size_t found = text_.find(mark, from);
  if (found == absl::string_view::npos) {
    // The mark may begin with the last bytes.
    searched = std::max(from, text_.size() - std::min(text_.size(), mark.size() - 1));
    return ended_ ? Match::kNo : Match::kMore;
  }
  out = text_.substr(at_, found - at_);
  at_ = found + mark.size();
  searched = 0;
  return Match::kYes;
}

JsonSpan::State JsonSpan::Scan(absl::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
    } else if (c == '{' || c == '[') {
      if (++depth_ > kMaxCallDepth) {
        problem_ = "expected JSON of at most 64 levels";
        return State::kBad;
      }
    } else if (depth_ == 0) {
      problem_ = "expected a JSON object";
      return State::kBad;
    } else if (c == '"') {
      in_string_ = true;
    } else if ((c == '}' || c == ']') && --depth_ == 0) {
      ++at_;
      return State::kDone;
    }
  }
  return State::kMore;
}

}  // namespace tandem::tool_calls
