#include "common/text/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"
#include "common/text/utf8.h"

namespace tandem::text {
namespace {

bool Steers(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) ||  // C0, DEL, C1
         c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069) ||  // bidirectional marks, embeddings, overrides, isolates
         c == 0x2028 || c == 0x2029;      // line and paragraph separators
}

std::string Escape(absl::string_view text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint c = DecodeUtf8(text);
    const size_t size = c.size == 0 ? 1 : c.size;
    if (c.size == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(text[0]));
    } else if (c.value == '\n' || c.value == '\t') {
      if (one_line) {
        out += c.value == '\n' ? "\\n" : "\\t";
      } else {
        out += text[0];
      }
    } else if (Steers(c.value)) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(c.value));
    } else {
      out.append(text.data(), size);
    }
    text.remove_prefix(size);
  }
  return out;
}

}  // namespace

std::string Printable(absl::string_view text) { return Escape(text, /*one_line=*/false); }

std::string PrintableLine(absl::string_view text) { return Escape(text, /*one_line=*/true); }

}  // namespace tandem::text
