// The steps that decoders are made of.
#ifndef TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_
#define TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/tokenizer/decoder.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

// Bytes written as GPT-2's characters; all tokens become one, ill-formed bytes U+FFFD. Holds back
// bytes that may be the start of a character.
std::unique_ptr<DecodeStep> MakeByteLevelStep();
// "<0xE4>" tokens. A run of them is text if all of it is UTF-8, else one U+FFFD for each; so a run
// is held back until it ends.
std::unique_ptr<DecodeStep> MakeByteFallbackStep();
// All tokens become one.
std::unique_ptr<DecodeStep> MakeFuseStep();
// In each token, which is held back until it ends.
std::unique_ptr<DecodeStep> MakeReplaceStep(Regex pattern, std::string content);
// Up to `start` leading and `stop` trailing characters of each token.
std::unique_ptr<DecodeStep> MakeStripStep(char32_t content, size_t start, size_t stop);
// The replacement character is a space again; with `drop_first` nothing in the first token.
std::unique_ptr<DecodeStep> MakeMetaspaceStep(char32_t replacement, bool drop_first);
// Spaces between tokens.
std::unique_ptr<DecodeStep> MakeJoinStep();

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_
