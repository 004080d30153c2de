// The text of a token in log-prob lists.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_

#include <cstdint>
#include <string>

#include "common/tokenizer/tokenizer.h"

namespace tandem::rollout::openai {

// Decodes one token, including its leading space. Returns the vocabulary's own spelling if the
// token is part of a character or decodes to nothing; "token_id:17" if `tokenizer` is null or has
// no such token.
std::string TokenText(const tokenizer::Tokenizer* tokenizer, int32_t id);

// Number of characters in UTF-8 text.
int64_t CountCharacters(const std::string& text);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_
