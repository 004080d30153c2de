#include "common/tokenizer/byte_level.h"

#include <array>

#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr size_t kCharacters = 0x144;  // the last one stands for U+00AD

struct Tables {
  std::array<std::string, 256> character_of;
  std::array<int, kCharacters> byte_of;
};

const Tables& GetTables() {
  static const Tables* const tables = [] {
    auto* t = new Tables;
    t->byte_of.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      const char32_t c = printable ? static_cast<char32_t>(byte) : next++;
      AppendUtf8(c, &t->character_of[static_cast<size_t>(byte)]);
      t->byte_of[c] = byte;
    }
    return t;
  }();
  return *tables;
}

}  // namespace

void AppendByteLevel(absl::string_view bytes, std::string* out) {
  const Tables& tables = GetTables();
  for (char byte : bytes) out->append(tables.character_of[static_cast<unsigned char>(byte)]);
}

void AppendFromByteLevel(absl::string_view token, std::string* out) {
  const Tables& tables = GetTables();
  const size_t before = out->size();
  for (size_t i = 0; i < token.size();) {
    size_t length;
    const char32_t c = DecodeAt(token, i, &length);
    i += length;
    if (c >= kCharacters || tables.byte_of[c] < 0) {
      out->resize(before);
      out->append(token.data(), token.size());
      return;
    }
    out->push_back(static_cast<char>(tables.byte_of[c]));
  }
}

}  // namespace tandem::tokenizer
