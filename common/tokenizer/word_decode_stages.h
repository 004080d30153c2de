// The steps of decoders whose tokens tell where words begin or end.
#ifndef TANDEM_COMMON_TOKENIZER_WORD_DECODE_STAGES_H_
#define TANDEM_COMMON_TOKENIZER_WORD_DECODE_STAGES_H_

#include <memory>
#include <string>

#include "common/tokenizer/decoder.h"

namespace tandem::tokenizer {

// Takes `prefix` from the tokens that continue a word, and puts spaces before the others. `cleanup`
// removes the space before punctuation and contracted words, in each token.
std::unique_ptr<DecodeStep> MakeWordPieceStep(std::string prefix, bool cleanup);
// Turns `suffix` (not empty), the end of a word, into a space, but deletes it in the last token. So
// it holds back each token until the next one starts.
std::unique_ptr<DecodeStep> MakeSuffixStep(std::string suffix);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_WORD_DECODE_STAGES_H_
