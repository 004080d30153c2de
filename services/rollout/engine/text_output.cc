#include "services/rollout/engine/text_output.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {

TextOutput::TextOutput(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops,
                       bool show_special_tokens)
    : tokenizer_(tokenizer),
      show_special_tokens_(show_special_tokens),
      decoder_(tokenizer, /*skip_special_tokens=*/!show_special_tokens),
      stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_stop_ = std::max(longest_stop_, stop.size());
}

absl::StatusOr<bool> TextOutput::Push(int32_t id, bool may_stop) {
  ASSIGN_OR_RETURN(const std::string piece, decoder_.Push(id));
  // A stop string ends within the new piece.
  const size_t from = text_.size() + 1 > longest_stop_ ? text_.size() + 1 - longest_stop_ : 0;
  text_ += piece;
  if (show_special_tokens_ && tokenizer_.IsSpecial(id)) {
    // Text that was held back within a character may stand before it.
    const size_t size = tokenizer_.IdToToken(id)->size();
    if (absl::EndsWith(piece, *tokenizer_.IdToToken(id))) {
      const auto end = static_cast<int64_t>(text_.size());
      special_.push_back({end - static_cast<int64_t>(size), end});
    }
  }
  return may_stop && Match(from);
}

bool TextOutput::Match(size_t from) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t found = text_.find(stop, from);
    if (found >= first) continue;
    first = found;
    stop_string_ = stop;
  }
  if (first == std::string::npos) return false;
  text_.resize(first);
  const auto end = static_cast<int64_t>(first);
  std::erase_if(special_, [&](const TextSpan& span) { return span.begin >= end; });
  if (!special_.empty()) special_.back().end = std::min(special_.back().end, end);
  ended_ = true;
  return true;
}

absl::Status TextOutput::Finish() {
  if (ended_) return absl::OkStatus();
  ended_ = true;
  ASSIGN_OR_RETURN(const std::string rest, decoder_.Finish());
  text_ += rest;
  return absl::OkStatus();
}

std::string TextOutput::Take(std::vector<TextSpan>& special) {
  size_t held = 0;
  if (!ended_) {
    for (const std::string& stop : stops_) {
      for (size_t n = std::min(stop.size() - 1, text_.size()); n > held; --n) {
        if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) {
          held = n;
          break;
        }
      }
    }
  }
  // A special token is taken in one piece.
  auto size = static_cast<int64_t>(text_.size() - held);
  for (const TextSpan& span : special_) {
    if (span.begin < size && span.end > size) size = span.begin;
  }
  std::string out = text_.substr(0, size);
  text_.erase(0, size);
  for (const TextSpan& span : std::exchange(special_, {})) {
    if (span.end <= size) {
      special.push_back(span);
    } else {
      special_.push_back({span.begin - size, span.end - size});
    }
  }
  return out;
}

}  // namespace tandem::rollout
