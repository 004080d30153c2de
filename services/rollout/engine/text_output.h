// Incremental text of a sample, with detection of stop strings.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::rollout {

// Holds back text that could still become a stop string. Leaves out special tokens and a matched
// stop string. Used by the engine thread; the tokenizer must outlive it.
class TextOutput {
 public:
  TextOutput(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops);

  // Returns true if this token completes a stop string. With `may_stop` false, stop strings are
  // text.
  absl::StatusOr<bool> Push(int32_t id, bool may_stop);

  // Call after the last token: releases held-back text.
  absl::Status Finish();

  // Takes the settled text since the last call.
  std::string Take();

 private:
  bool Match(size_t from);

  tokenizer::IncrementalDecoder decoder_;
  std::vector<std::string> stops_;
  size_t longest_stop_ = 0;
  std::string text_;  // not taken yet
  bool ended_ = false;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_
