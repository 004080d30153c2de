// Unicode as the Hugging Face tokenizers see it.
//
// Their parts use Unicode tables of different ages: the regular expressions Unicode 16, the
// normalization forms an old one (before 11), Rust's own predicates 17. A tokenizer's ids depend on
// these, so the functions here start from utf8proc and correct it to the version that each part
// uses.
//
//   RETURN_IF_ERROR(ValidateUtf8(text));
//   std::string nfc = Normalize(text, NormalizationForm::kNfc);
//
// All functions are pure and thread-safe. Those that take a string expect valid UTF-8.
#ifndef TANDEM_COMMON_TOKENIZER_UNICODE_H_
#define TANDEM_COMMON_TOKENIZER_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem::tokenizer {

// InvalidArgument with the offset of the first byte that is not well-formed UTF-8.
absl::Status ValidateUtf8(absl::string_view text);

// Length of the longest prefix of `text` that is well-formed UTF-8.
size_t ValidUtf8Prefix(absl::string_view text);

// Bytes at the start of `bytes` that one U+FFFD replaces: the longest prefix of a well-formed
// sequence, at least 1. Sets `*incomplete` when more bytes could still complete it.
size_t IllFormedLength(absl::string_view bytes, bool* incomplete);

// Code point at `offset`; sets `*length` to its bytes.
char32_t DecodeAt(absl::string_view text, size_t offset, size_t* length);
// Code point that ends at `end` (> 0); sets `*length` to its bytes.
char32_t DecodeBefore(absl::string_view text, size_t end, size_t* length);
void AppendUtf8(char32_t code_point, std::string* out);
size_t CountCodePoints(absl::string_view text);
// End of the extended grapheme cluster (Unicode 17) that starts at `begin` (< text.size()).
size_t GraphemeEnd(absl::string_view text, size_t begin);

// General categories in utf8proc's order.
enum Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo
};

struct CategoryRange {
  char32_t first;
  char32_t last;
  Category category;
};

// Code points assigned by Unicode 14.0 to 16.0, which PCRE2 10.42 does not know.
absl::Span<const CategoryRange> AssignedSinceUnicode14();

Category GeneralCategory(char32_t c);  // Unicode 16
bool IsWhitespace(char32_t c);         // the White_Space property
bool IsNumeric(char32_t c);            // Nd, Nl, No
bool IsPunctuation(char32_t c);        // ASCII punctuation and symbols, and P* of Unicode 8
bool IsWord(char32_t c);               // \w of Rust's regular expressions

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };
std::string Normalize(absl::string_view text, NormalizationForm form);

// Lowercases each character by itself, like Rust's char::to_lowercase (no final sigma).
std::string Lowercase(absl::string_view text);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_UNICODE_H_
