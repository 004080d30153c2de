// The text of a sample as it grows, and the stop strings in it.
#ifndef TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_
#define TANDEM_SERVICES_ROLLOUT_ENGINE_TEXT_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::rollout {

// Holds back as much text as could still become a stop string. Special tokens and a matched stop
// string are left out. Used by the engine thread; the tokenizer outlives it.
class TextOutput {
 public:
  TextOutput(const tokenizer::Tokenizer& tokenizer, std::vector<std::string> stops);

  // True where a stop string is complete with this token. With `may_stop` false it counts as text.
  absl::StatusOr<bool> Push(int32_t id, bool may_stop);

  // No more tokens come: what was held back is text.
  absl::Status Finish();

  // The text that is certain and was not taken yet.
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
