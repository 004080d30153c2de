// The normalizers of BERT-like tokenizers. Their Unicode tables are old (8 to 10), and each has its
// own; the functions here follow them character by character.
//
// All functions are pure and thread-safe, and expect valid UTF-8.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_CLEANING_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_CLEANING_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Normalizer "StripAccents": removes combining marks. Composed characters keep theirs unless NFD
// ran before.
std::string StripAccents(absl::string_view text);

// Normalizer "Nmt": removes control characters, and makes spaces of other invisible ones.
std::string CleanNmt(absl::string_view text);

// The fields of the normalizer "BertNormalizer", applied in this order.
struct BertCleaning {
  bool clean_text = true;            // removes control characters; white space becomes ' '
  bool handle_chinese_chars = true;  // puts spaces around each Chinese character
  bool strip_accents = true;         // decomposes, and removes the marks without width
  bool lowercase = true;
};
std::string CleanBert(absl::string_view text, const BertCleaning& options);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_CLEANING_H_
