// Incremental text of a sample, with detection of stop strings.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "services/rollout/engine/generation.h"

namespace tandem::rollout {

// Holds back text that could still become a stop string. Leaves out a matched stop string and,
// unless they are asked for, special tokens. Used by the engine thread; the tokenizer must outlive it.
class TextOutput {
 public:
  // `show_special_tokens`: the text has them, and stop strings match them.
  TextOutput(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops,
             bool show_special_tokens = false);

  // Returns true if this token completes a stop string. With `may_stop` false, stop strings are
  // text.
  absl::StatusOr<bool> Push(int32_t id, bool may_stop);

  // Call after the last token: releases held-back text.
  absl::Status Finish();

  // Takes the settled text since the last call; adds the special tokens in it to `special`.
  std::string Take(std::vector<TextSpan>& special);

  // The stop string that was completed; empty if none was.
  const std::string& stop_string() const { return stop_string_; }

 private:
  bool Match(size_t from);

  const tokenizer::Tokenizer& tokenizer_;
  const bool show_special_tokens_;
  tokenizer::IncrementalDecoder decoder_;
  std::vector<std::string> stops_;
  size_t longest_stop_ = 0;
  std::string text_;               // not taken yet
  std::vector<TextSpan> special_;  // in text_
  std::string stop_string_;
  bool ended_ = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_
