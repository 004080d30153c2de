// The steps of decoders.
#ifndef TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_
#define TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_

#include <cstddef>
#include <memory>
#include <string>

#include "common/tokenizer/decoder.h"
#include "common/tokenizer/regex.h"

namespace tandem::tokenizer {

// Decodes bytes written as GPT-2's characters; joins all tokens into one and replaces ill-formed
// bytes by U+FFFD. Holds back bytes that may start a character.
std::unique_ptr<DecodeStep> MakeByteLevelStep();
// Decodes "<0xE4>" tokens. A run of them becomes text if all of it is UTF-8, else one U+FFFD for
// each; so it holds back a run until it ends.
std::unique_ptr<DecodeStep> MakeByteFallbackStep();
// Joins all tokens into one.
std::unique_ptr<DecodeStep> MakeFuseStep();
// Replaces matches in each token, which it holds back until the token ends.
std::unique_ptr<DecodeStep> MakeReplaceStep(Regex pattern, std::string content);
// Strips up to `start` leading and `stop` trailing characters of each token.
std::unique_ptr<DecodeStep> MakeStripStep(char32_t content, size_t start, size_t stop);
// Turns the replacement character back into a space; with `drop_first`, deletes it in the first
// token.
std::unique_ptr<DecodeStep> MakeMetaspaceStep(char32_t replacement, bool drop_first);
// Puts spaces between tokens.
std::unique_ptr<DecodeStep> MakeJoinStep();

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_DECODE_STAGES_H_
