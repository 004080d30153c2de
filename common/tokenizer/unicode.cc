#include "common/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tandem::tokenizer {
namespace {

static_assert(static_cast<int>(kCo) == UTF8PROC_CATEGORY_CO);

constexpr CategoryRange kAssignedSinceUnicode14[] = {
    {0x897, 0x897, kMn},     {0xcf3, 0xcf3, kMc},     {0xece, 0xece, kMn},
    {0x1b4e, 0x1b4f, kPo},   {0x1b7f, 0x1b7f, kPo},   {0x1c89, 0x1c89, kLu},
    {0x1c8a, 0x1c8a, kLl},   {0x2427, 0x2429, kSo},   {0x2ffc, 0x2fff, kSo},
    {0x31e4, 0x31e5, kSo},   {0x31ef, 0x31ef, kSo},   {0xa7cb, 0xa7cc, kLu},
    {0xa7cd, 0xa7cd, kLl},   {0xa7da, 0xa7da, kLu},   {0xa7db, 0xa7db, kLl},
    {0xa7dc, 0xa7dc, kLu},   {0x105c0, 0x105f3, kLo}, {0x10d40, 0x10d49, kNd},
    {0x10d4a, 0x10d4d, kLo}, {0x10d4e, 0x10d4e, kLm}, {0x10d4f, 0x10d4f, kLo},
    {0x10d50, 0x10d65, kLu}, {0x10d69, 0x10d6d, kMn}, {0x10d6e, 0x10d6e, kPd},
    {0x10d6f, 0x10d6f, kLm}, {0x10d70, 0x10d85, kLl}, {0x10d8e, 0x10d8f, kSm},
    {0x10ec2, 0x10ec4, kLo}, {0x10efc, 0x10eff, kMn}, {0x1123f, 0x11240, kLo},
    {0x11241, 0x11241, kMn}, {0x11380, 0x11389, kLo}, {0x1138b, 0x1138b, kLo},
    {0x1138e, 0x1138e, kLo}, {0x11390, 0x113b5, kLo}, {0x113b7, 0x113b7, kLo},
    {0x113b8, 0x113ba, kMc}, {0x113bb, 0x113c0, kMn}, {0x113c2, 0x113c2, kMc},
    {0x113c5, 0x113c5, kMc}, {0x113c7, 0x113ca, kMc}, {0x113cc, 0x113cd, kMc},
    {0x113ce, 0x113ce, kMn}, {0x113cf, 0x113cf, kMc}, {0x113d0, 0x113d0, kMn},
    {0x113d1, 0x113d1, kLo}, {0x113d2, 0x113d2, kMn}, {0x113d3, 0x113d3, kLo},
    {0x113d4, 0x113d5, kPo}, {0x113d7, 0x113d8, kPo}, {0x113e1, 0x113e2, kMn},
    {0x116d0, 0x116e3, kNd}, {0x1171e, 0x1171e, kMc}, {0x11b00, 0x11b09, kPo},
    {0x11bc0, 0x11be0, kLo}, {0x11be1, 0x11be1, kPo}, {0x11bf0, 0x11bf9, kNd},
    {0x11f00, 0x11f01, kMn}, {0x11f02, 0x11f02, kLo}, {0x11f03, 0x11f03, kMc},
    {0x11f04, 0x11f10, kLo}, {0x11f12, 0x11f33, kLo}, {0x11f34, 0x11f35, kMc},
    {0x11f36, 0x11f3a, kMn}, {0x11f3e, 0x11f3f, kMc}, {0x11f40, 0x11f40, kMn},
    {0x11f41, 0x11f41, kMc}, {0x11f42, 0x11f42, kMn}, {0x11f43, 0x11f4f, kPo},
    {0x11f50, 0x11f59, kNd}, {0x11f5a, 0x11f5a, kMn}, {0x1342f, 0x1342f, kLo},
    {0x13439, 0x1343f, kCf}, {0x13440, 0x13440, kMn}, {0x13441, 0x13446, kLo},
    {0x13447, 0x13455, kMn}, {0x13460, 0x143fa, kLo}, {0x16100, 0x1611d, kLo},
    {0x1611e, 0x16129, kMn}, {0x1612a, 0x1612c, kMc}, {0x1612d, 0x1612f, kMn},
    {0x16130, 0x16139, kNd}, {0x16d40, 0x16d42, kLm}, {0x16d43, 0x16d6a, kLo},
    {0x16d6b, 0x16d6c, kLm}, {0x16d6d, 0x16d6f, kPo}, {0x16d70, 0x16d79, kNd},
    {0x18cff, 0x18cff, kLo}, {0x1b132, 0x1b132, kLo}, {0x1b155, 0x1b155, kLo},
    {0x1cc00, 0x1ccef, kSo}, {0x1ccf0, 0x1ccf9, kNd}, {0x1cd00, 0x1ceb3, kSo},
    {0x1d2c0, 0x1d2d3, kNo}, {0x1df25, 0x1df2a, kLl}, {0x1e030, 0x1e06d, kLm},
    {0x1e08f, 0x1e08f, kMn}, {0x1e4d0, 0x1e4ea, kLo}, {0x1e4eb, 0x1e4eb, kLm},
    {0x1e4ec, 0x1e4ef, kMn}, {0x1e4f0, 0x1e4f9, kNd}, {0x1e5d0, 0x1e5ed, kLo},
    {0x1e5ee, 0x1e5ef, kMn}, {0x1e5f0, 0x1e5f0, kLo}, {0x1e5f1, 0x1e5fa, kNd},
    {0x1e5ff, 0x1e5ff, kPo}, {0x1f6dc, 0x1f6dc, kSo}, {0x1f774, 0x1f776, kSo},
    {0x1f77b, 0x1f77f, kSo}, {0x1f7d9, 0x1f7d9, kSo}, {0x1f8b2, 0x1f8bb, kSo},
    {0x1f8c0, 0x1f8c1, kSo}, {0x1fa75, 0x1fa77, kSo}, {0x1fa87, 0x1fa89, kSo},
    {0x1fa8f, 0x1fa8f, kSo}, {0x1faad, 0x1faaf, kSo}, {0x1fabb, 0x1fabf, kSo},
    {0x1fac6, 0x1fac6, kSo}, {0x1face, 0x1facf, kSo}, {0x1fada, 0x1fadc, kSo},
    {0x1fadf, 0x1fadf, kSo}, {0x1fae8, 0x1fae9, kSo}, {0x1faf7, 0x1faf8, kSo},
    {0x1fbcb, 0x1fbef, kSo}, {0x2b739, 0x2b739, kLo}, {0x2ebf0, 0x2ee5d, kLo},
    {0x31350, 0x323af, kLo},
};

struct Range {
  char32_t first;
  char32_t last;
};

template <size_t n>
bool Contains(const Range (&ranges)[n], char32_t c) {
  const Range* range = std::upper_bound(
      ranges, ranges + n, c, [](char32_t value, const Range& r) { return value < r.first; });
  return range != ranges && c <= (range - 1)->last;
}

// Code points that utf8proc normalizes and the reference's older tables do not: newer
// decompositions and combining classes (which become starters). Composition never joins one of
// these with a neighbour.
constexpr Range kNotNormalized[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},
    {0xc3c, 0xc3c},     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},
    {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},
    {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

// Punctuation newer than the reference's table.
constexpr Range kNotPunctuation[] = {
    {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
    {0xc84, 0xc84},     {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x2e43, 0x2e4f},
    {0x2e52, 0x2e5d},   {0x10d6e, 0x10d6e}, {0x10ead, 0x10ead}, {0x10f55, 0x10f59},
    {0x10f86, 0x10f89}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x1144b, 0x1144f},
    {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
    {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
    {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1},
    {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f},
    {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a},
    {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff}, {0x1e95e, 0x1e95f},
};

// Marks that join the character before them since Unicode 15.1, up to 17.
constexpr Range kNewerGraphemeMarks[] = {
    {0x897, 0x897},     {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x10d69, 0x10d6d},
    {0x10efa, 0x10efc}, {0x113b8, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5},
    {0x113c7, 0x113ca}, {0x113cc, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2},
    {0x11b60, 0x11b67}, {0x11f5a, 0x11f5a}, {0x1611e, 0x1612f}, {0x1e5ee, 0x1e5ef},
    {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5},
};

bool Continues(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// Length of the well-formed sequence at the start of `s`, or 0.
size_t SequenceLength(absl::string_view s) {
  const auto byte = [&s](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (s.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if (!Continues(byte(i))) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

void NormalizeSegment(absl::string_view text, NormalizationForm form, std::string* out) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE;
  const bool compose = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd) {
    options |= UTF8PROC_COMPAT;
  }
  // Decomposes and orders canonically here: utf8proc's own ordering is quadratic in the length of a
  // run of combining marks.
  std::vector<utf8proc_int32_t> buffer;
  buffer.reserve(text.size());
  const auto combining_class = [](utf8proc_int32_t c) {
    return utf8proc_get_property(c)->combining_class;
  };
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const auto c = static_cast<utf8proc_int32_t>(DecodeAt(text, i, &length));
    i += length;
    utf8proc_int32_t parts[32];
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(c, parts, 32, static_cast<utf8proc_option_t>(options), nullptr);
    if (n < 0 || n > 32) {
      buffer.push_back(c);
    } else {
      buffer.insert(buffer.end(), parts, parts + n);
    }
  }
  for (size_t i = 0; i < buffer.size();) {
    if (combining_class(buffer[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < buffer.size() && combining_class(buffer[end]) != 0) ++end;
    std::stable_sort(buffer.begin() + static_cast<ptrdiff_t>(i),
                     buffer.begin() + static_cast<ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) {
                       return combining_class(a) < combining_class(b);
                     });
    i = end;
  }
  utf8proc_ssize_t count = static_cast<utf8proc_ssize_t>(buffer.size());
  if (compose) {
    count = utf8proc_normalize_utf32(buffer.data(), count, static_cast<utf8proc_option_t>(options));
  }
  if (count < 0) {  // only out-of-range code points, which UTF-8 cannot hold
    out->append(text.data(), text.size());
    return;
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<char32_t>(buffer[static_cast<size_t>(i)]), out);
  }
}

// Controls, behind which a grapheme always ends.
bool SeparatesGraphemes(utf8proc_int32_t c) {
  const auto kind = utf8proc_get_property(c)->boundclass;
  return kind == UTF8PROC_BOUNDCLASS_CONTROL || kind == UTF8PROC_BOUNDCLASS_CR ||
         kind == UTF8PROC_BOUNDCLASS_LF;
}

// Whether the text needs no look at Unicode properties.
bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

char32_t LowercaseOf(char32_t c) {
  // Pairs that utf8proc's Unicode 15 does not have yet.
  if (c >= 0xA7CB && c <= 0xA7DC) {
    if (c == 0xA7CB) return 0x264;
    if (c == 0xA7DC) return 0x19B;
    if (c == 0xA7CC || c == 0xA7CE || c == 0xA7D2 || c == 0xA7D4 || c == 0xA7DA) return c + 1;
  }
  if (c == 0x1C89) return 0x1C8A;
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 27;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

}  // namespace

size_t ValidUtf8Prefix(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const size_t length = SequenceLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return i;
}

absl::Status ValidateUtf8(absl::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("text is not valid UTF-8: byte 0x",
                   absl::Hex(static_cast<unsigned char>(text[valid]), absl::kZeroPad2),
                   " at byte offset ", valid, " of ", text.size(), "; encode the text as UTF-8"));
}

size_t IllFormedLength(absl::string_view bytes, bool* incomplete) {
  *incomplete = false;
  const auto byte = [&bytes](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      *incomplete = true;
      return i;
    }
    if (!Continues(byte(i))) return i;
    if (i == 1 && ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
                   (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F))) {
      return 1;
    }
  }
  return length;
}

char32_t DecodeAt(absl::string_view text, size_t offset, size_t* length) {
  const auto byte = [&](size_t i) -> char32_t {
    return offset + i < text.size() ? static_cast<unsigned char>(text[offset + i]) : 0;
  };
  const char32_t lead = byte(0);
  size_t n = 1;
  char32_t c = lead;
  if (lead >= 0xF0) {
    n = 4;
    c = (lead & 7) << 18 | (byte(1) & 63) << 12 | (byte(2) & 63) << 6 | (byte(3) & 63);
  } else if (lead >= 0xE0) {
    n = 3;
    c = (lead & 15) << 12 | (byte(1) & 63) << 6 | (byte(2) & 63);
  } else if (lead >= 0xC0) {
    n = 2;
    c = (lead & 31) << 6 | (byte(1) & 63);
  }
  *length = std::min(n, text.size() - offset);
  return c;
}

char32_t DecodeBefore(absl::string_view text, size_t end, size_t* length) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && Continues(static_cast<unsigned char>(text[start]))) {
    --start;
  }
  const char32_t c = DecodeAt(text, start, length);
  *length = end - start;
  return c;
}

void AppendUtf8(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out->push_back(static_cast<char>(0xC0 | c >> 6));
    out->push_back(static_cast<char>(0x80 | (c & 63)));
  } else if (c < 0x10000) {
    out->push_back(static_cast<char>(0xE0 | c >> 12));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 63)));
    out->push_back(static_cast<char>(0x80 | (c & 63)));
  } else {
    out->push_back(static_cast<char>(0xF0 | c >> 18));
    out->push_back(static_cast<char>(0x80 | (c >> 12 & 63)));
    out->push_back(static_cast<char>(0x80 | (c >> 6 & 63)));
    out->push_back(static_cast<char>(0x80 | (c & 63)));
  }
}

size_t CountCodePoints(absl::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return !Continues(static_cast<unsigned char>(c)); }));
}

size_t GraphemeEnd(absl::string_view text, size_t begin) {
  size_t length;
  auto previous = static_cast<utf8proc_int32_t>(DecodeAt(text, begin, &length));
  utf8proc_int32_t state = 0;
  size_t end = begin + length;
  while (end < text.size()) {
    const auto next = static_cast<utf8proc_int32_t>(DecodeAt(text, end, &length));
    const bool joins =
        Contains(kNewerGraphemeMarks, static_cast<char32_t>(next)) && !SeparatesGraphemes(previous);
    if (!joins && utf8proc_grapheme_break_stateful(previous, next, &state)) break;
    previous = next;
    end += length;
  }
  return end;
}

absl::Span<const CategoryRange> AssignedSinceUnicode14() { return kAssignedSinceUnicode14; }

Category GeneralCategory(char32_t c) {
  const auto ranges = AssignedSinceUnicode14();
  const auto range =
      std::upper_bound(ranges.begin(), ranges.end(), c,
                       [](char32_t value, const CategoryRange& r) { return value < r.first; });
  if (range != ranges.begin() && c <= (range - 1)->last) return (range - 1)->category;
  return static_cast<Category>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
}

bool IsWhitespace(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const Category category = GeneralCategory(c);
  return (category >= kNd && category <= kNo) || (c >= 0x11DE0 && c <= 0x11DE9) ||
         (c >= 0x16FF4 && c <= 0x16FF6);
}

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  if (c == 0x166D || c == 0x111C9) return true;
  const Category category = GeneralCategory(c);
  return category >= kPc && category <= kPo && !Contains(kNotPunctuation, c);
}

bool IsWord(char32_t c) {
  if (c < 0x80) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  const Category category = GeneralCategory(c);
  if ((category >= kLu && category <= kNl) || category == kPc) return true;
  return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

std::string Normalize(absl::string_view text, NormalizationForm form) {
  if (IsAscii(text)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  size_t segment = 0;
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = DecodeAt(text, i, &length);
    if (c >= kNotNormalized[0].first && Contains(kNotNormalized, c)) {
      NormalizeSegment(text.substr(segment, i - segment), form, &out);
      out.append(text.data() + i, length);
      segment = i + length;
    }
    i += length;
  }
  NormalizeSegment(text.substr(segment), form, &out);
  return out;
}

std::string Lowercase(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t length;
    const char32_t c = DecodeAt(text, i, &length);
    i += length;
    if (c == 0x130) {
      out.append("i\xCC\x87");  // the one lower case of two characters
    } else {
      AppendUtf8(LowercaseOf(c), &out);
    }
  }
  return out;
}

}  // namespace tandem::tokenizer
