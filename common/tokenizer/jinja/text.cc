#include "common/tokenizer/jinja/text.h"

#include <utf8proc.h>

#include <algorithm>

#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja {
namespace {

bool IsCased(char32_t c) {
  const Category category = GeneralCategory(c);
  return category == kLu || category == kLl || category == kLt;
}

void AppendUpper(char32_t c, std::string* out) {
  if (c == 0xDF) {
    out->append("SS");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), out);
  }
}

void AppendTitle(char32_t c, std::string* out) {
  if (c == 0xDF) {
    out->append("Ss");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), out);
  }
}

}  // namespace

bool IsPythonSpace(char32_t c) { return IsWhitespace(c) || (c >= 0x1C && c <= 0x1F); }

absl::string_view Strip(absl::string_view text, Side side,
                        std::optional<absl::string_view> characters) {
  const auto strips = [&](absl::string_view character, char32_t c) {
    if (!characters.has_value()) return IsPythonSpace(c);
    return !character.empty() && characters->find(character) != absl::string_view::npos;
  };
  size_t length;
  while (side != Side::kRight && !text.empty()) {
    const char32_t c = DecodeAt(text, 0, &length);
    if (!strips(text.substr(0, length), c)) break;
    text.remove_prefix(length);
  }
  while (side != Side::kLeft && !text.empty()) {
    const char32_t c = DecodeBefore(text, text.size(), &length);
    if (!strips(text.substr(text.size() - length), c)) break;
    text.remove_suffix(length);
  }
  return text;
}

std::vector<size_t> CodePointOffsets(absl::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t i = 0; i < text.size();) {
    offsets.push_back(i);
    size_t length;
    DecodeAt(text, i, &length);
    i += length;
  }
  offsets.push_back(text.size());
  return offsets;
}

std::string Upper(absl::string_view text) {
  std::string out;
  for (size_t i = 0, length; i < text.size(); i += length)
    AppendUpper(DecodeAt(text, i, &length), &out);
  return out;
}

std::string Lower(absl::string_view text) { return Lowercase(text); }

std::string Capitalize(absl::string_view text) {
  if (text.empty()) return "";
  size_t length;
  std::string out;
  AppendTitle(DecodeAt(text, 0, &length), &out);
  return out + Lower(text.substr(length));
}

std::string Title(absl::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const char32_t c = DecodeAt(text, i, &length);
    if (inside) {
      out.append(Lower(text.substr(i, length)));
    } else {
      AppendTitle(c, &out);
    }
    inside = IsCased(c);
  }
  return out;
}

std::vector<std::string> SplitText(absl::string_view text,
                                   std::optional<absl::string_view> separator, int64_t limit,
                                   bool from_right) {
  std::vector<std::string> out;
  const auto allowed = [&] { return limit < 0 || static_cast<int64_t>(out.size()) < limit; };
  if (separator.has_value()) {
    while (allowed()) {
      const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
      if (at == absl::string_view::npos) break;
      if (from_right) {
        out.emplace_back(text.substr(at + separator->size()));
        text = text.substr(0, at);
      } else {
        out.emplace_back(text.substr(0, at));
        text.remove_prefix(at + separator->size());
      }
    }
    out.emplace_back(text);
  } else {
    const Side outer = from_right ? Side::kRight : Side::kLeft;
    text = Strip(text, outer);
    while (!text.empty() && allowed()) {
      size_t word = 0, length;
      if (from_right) {
        while (word < text.size() &&
               !IsPythonSpace(DecodeBefore(text, text.size() - word, &length))) {
          word += length;
        }
        out.emplace_back(text.substr(text.size() - word));
        text.remove_suffix(word);
      } else {
        while (word < text.size() && !IsPythonSpace(DecodeAt(text, word, &length))) word += length;
        out.emplace_back(text.substr(0, word));
        text.remove_prefix(word);
      }
      text = Strip(text, outer);
    }
    if (!text.empty()) out.emplace_back(text);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SplitLines(absl::string_view text, bool keep_ends) {
  std::vector<std::string> out;
  size_t start = 0;
  for (size_t i = 0, length; i < text.size(); i += length) {
    const char32_t c = DecodeAt(text, i, &length);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && i + 1 < text.size() && text[i + 1] == '\n') length = 2;
    out.emplace_back(text.substr(start, (keep_ends ? i + length : i) - start));
    start = i + length;
  }
  if (start < text.size()) out.emplace_back(text.substr(start));
  return out;
}

}  // namespace tandem::tokenizer::jinja
