#include "tools/tandem/reward/code_points.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tandem::reward {
namespace {

constexpr char32_t kStrayByte = 0x110100;  // beyond the last code point; plus the byte's value

// Decodes the sequence at the front of `text`; returns its length, or 1 if the bytes are no UTF-8.
size_t DecodeOne(absl::string_view text, char32_t* code_point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80   ? 1
                        : first < 0xC2 ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  *code_point = length == 1 ? first : kStrayByte + first;
  if (length <= 1 || length > text.size()) return 1;
  char32_t value = first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 1;
    value = value << 6 | (byte(i) & 0x3F);
  }
  *code_point = value;
  return length;
}

// Unicode's White_Space.
bool IsSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace

std::vector<char32_t> CodePoints(absl::string_view text) {
  std::vector<char32_t> out;
  out.reserve(text.size() + 1);
  while (!text.empty()) {
    char32_t code_point;
    text.remove_prefix(DecodeOne(text, &code_point));
    out.push_back(code_point);
  }
  return out;
}

std::vector<char32_t> Trimmed(absl::string_view text) {
  std::vector<char32_t> points = CodePoints(text);
  while (!points.empty() && IsSpace(points.back())) points.pop_back();
  points.erase(points.begin(), std::find_if_not(points.begin(), points.end(), IsSpace));
  return points;
}

}  // namespace tandem::reward
