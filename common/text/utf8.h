// Decodes UTF-8 one code point at a time.
#ifndef TANDEM_COMMON_TEXT_UTF8_H_
#define TANDEM_COMMON_TEXT_UTF8_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace tandem::text {

struct CodePoint {
  char32_t value = 0;
  size_t size = 0;  // bytes; 0 if the text does not begin with well-formed UTF-8 (RFC 3629)
};

// Decodes the code point at the front of `text`, which is not empty.
inline CodePoint DecodeUtf8(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return {};
  char32_t value = lead & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = (value << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (overlong || surrogate || value > 0x10FFFF) return {};
  return {value, size};
}

inline bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t size = DecodeUtf8(text).size;
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace tandem::text

#endif  // TANDEM_COMMON_TEXT_UTF8_H_
