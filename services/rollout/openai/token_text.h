// A token as the text that log-probs name it by.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_

#include <cstdint>
#include <string>

#include "common/tokenizer/tokenizer.h"

namespace tandem::rollout::openai {

// What the token decodes to on its own, with the space that it begins with; as the vocabulary
// writes it where it is part of a character or nothing; "token_id:17" where `tokenizer` is null or
// has no such token.
std::string TokenText(const tokenizer::Tokenizer* tokenizer, int32_t id);

// Characters of UTF-8 text.
int64_t CountCharacters(const std::string& text);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_TOKEN_TEXT_H_
