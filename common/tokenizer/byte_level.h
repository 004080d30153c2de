// GPT-2's printable characters for the 256 bytes, in which byte-level tokenizers write their
// vocabulary.
#ifndef TANDEM_COMMON_TOKENIZER_BYTE_LEVEL_H_
#define TANDEM_COMMON_TOKENIZER_BYTE_LEVEL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Appends a character for each byte.
void AppendByteLevel(absl::string_view bytes, std::string* out);

// Appends the bytes that the characters of `token` encode; `token` itself if one of its characters
// encodes none.
void AppendFromByteLevel(absl::string_view token, std::string* out);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_BYTE_LEVEL_H_
