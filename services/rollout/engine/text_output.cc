#include "services/rollout/engine/text_output.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace tandem::rollout {

TextOutput::TextOutput(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer, /*skip_special_tokens=*/true), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) longest_stop_ = std::max(longest_stop_, stop.size());
}

absl::StatusOr<bool> TextOutput::Push(int32_t id, bool may_stop) {
  ASSIGN_OR_RETURN(const std::string piece, decoder_.Push(id));
  // A stop string ends within the new piece.
  const size_t from = text_.size() + 1 > longest_stop_ ? text_.size() + 1 - longest_stop_ : 0;
  text_ += piece;
  return may_stop && Match(from);
}

bool TextOutput::Match(size_t from) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, text_.find(stop, from));
  if (first == std::string::npos) return false;
  text_.resize(first);
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

std::string TextOutput::Take() {
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
  std::string out = text_.substr(0, text_.size() - held);
  text_.erase(0, text_.size() - held);
  return out;
}

}  // namespace tandem::rollout
