// What a chat template writes between two turns of the policy.
//
// The sampled tokens stay as they were sampled; only the text that is new is rendered and tokenized.
// The template is asked twice, for the conversation with the policy's turn and for the conversation
// with the observation after it; what the second has beyond the first is new. The template must not
// change what was there:
//
//   so_far              the text that the policy continued
//   with the turn       so_far + the turn, as the template writes it + END
//   with observation    all of that + what is new, with the header of the next turn
//
// END is what the template puts after a turn ("<|im_end|>\n"). The policy has sampled a part of it,
// the end-of-turn token, or, after a stop string, nothing of it; the rest is new, too. A turn with
// calls may have an END of its own, which begins with the end-of-turn token.
#ifndef TANDEM_COMMON_TOKENIZER_OBSERVATION_TEXT_H_
#define TANDEM_COMMON_TOKENIZER_OBSERVATION_TEXT_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::tokenizer {

struct ObservationText {
  std::string text;      // follows the sampled tokens
  std::string with_all;  // the whole conversation, up to the header of the next turn
  // Set if the template rewrote the past: where, with both texts. `text` is then empty.
  std::optional<std::string> mismatch;
};

// `conversation` ends with the policy's turn, a message of the assistant; `observation` is a list of
// messages; `so_far` is with_all of the turn before, or the prompt. `end_token` is the text of the
// token that ended the turn, or empty. Errors: those of the template.
absl::StatusOr<ObservationText> RenderObservation(const nlohmann::ordered_json& conversation,
                                                  const nlohmann::ordered_json& observation,
                                                  absl::string_view so_far,
                                                  absl::string_view end_token, ChatOptions options,
                                                  const Tokenizer& tokenizer);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_OBSERVATION_TEXT_H_
