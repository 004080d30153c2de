#include "tools/tandem/reward/decimal.h"

#include <cstddef>
#include <initializer_list>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace tandem::reward {
namespace {

// Expanding larger exponents would turn short texts into long ones. In "1e9999" there is no
// exponent; 1 and 9999 are two numbers.
constexpr int kMaxExponent = 999;

bool DigitAt(absl::string_view text, size_t i) {
  return i < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[i]));
}

size_t SkipDigits(absl::string_view text, size_t i) {
  while (DigitAt(text, i)) ++i;
  return i;
}

// Bytes of the mark between groups of thousands at the start of `text`; 0 if there is none.
size_t GroupMark(absl::string_view text) {
  for (const absl::string_view mark :
       {"{,}\\!", "{,}", ",\\!", "\\,", ",", "\xE2\x80\xAF" /* U+202F */,
        "\xE2\x80\x89" /* U+2009 */, "\xC2\xA0" /* U+00A0 */}) {
    if (absl::StartsWith(text, mark)) return mark.size();
  }
  return 0;
}

// The end of the integer part that begins at `begin`; its digits go to `digits`.
size_t ScanInteger(absl::string_view text, size_t begin, std::string* digits) {
  size_t end = SkipDigits(text, begin);
  digits->assign(text.data() + begin, end - begin);
  if (end - begin > 3) return end;
  while (true) {
    const size_t group = end + GroupMark(text.substr(end));
    if (group == end || SkipDigits(text, group) != group + 3) return end;
    digits->append(text.data() + group, 3);
    end = group + 3;
  }
}

// Returns the exponent at `i` ("e3", "E-2") and moves `i` past it; 0 if there is none.
int ScanExponent(absl::string_view text, size_t* i) {
  if (*i >= text.size() || (text[*i] != 'e' && text[*i] != 'E')) return 0;
  size_t begin = *i + 1;
  const bool negative = begin < text.size() && text[begin] == '-';
  if (begin < text.size() && (text[begin] == '-' || text[begin] == '+')) ++begin;
  const size_t end = SkipDigits(text, begin);
  int exponent = 0;
  for (size_t k = begin; k < end; ++k) {
    exponent = exponent * 10 + (text[k] - '0');
    if (exponent > kMaxExponent) return 0;
  }
  if (end > begin) *i = end;
  return negative ? -exponent : exponent;
}

// Removes one of `endings` from the end of `text`; returns whether there was one.
bool StripEnding(absl::string_view* text, std::initializer_list<absl::string_view> endings) {
  for (const absl::string_view ending : endings) {
    if (absl::EndsWith(*text, ending)) {
      text->remove_suffix(ending.size());
      return true;
    }
  }
  return false;
}

// Whether `before`, the text in front of a number, ends in the number's minus sign.
bool IsNegative(absl::string_view before) {
  StripEnding(&before, {"\\$", "$", "\xE2\x82\xAC" /* euro */, "\xC2\xA3" /* pound */,
                        "\xC2\xA5" /* yen */, "\xE2\x82\xB9" /* rupee */});
  if (!StripEnding(&before, {"-", "\xE2\x88\x92" /* U+2212 */})) return false;
  if (before.empty()) return true;
  const unsigned char last = static_cast<unsigned char>(before.back());
  return !absl::ascii_isalnum(last) && last != ')' && last != ']' && last != '}';
}

Decimal Normalized(bool negative, std::string integer, std::string fraction, int exponent) {
  for (; exponent > 0; --exponent) {
    integer.push_back(fraction.empty() ? '0' : fraction[0]);
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  if (exponent < 0) {
    const size_t places = static_cast<size_t>(-exponent);
    if (integer.size() < places) integer.insert(0, places - integer.size(), '0');
    fraction.insert(0, integer.substr(integer.size() - places));
    integer.resize(integer.size() - places);
  }
  integer.erase(0, integer.find_first_not_of('0'));    // npos: all of it
  fraction.erase(fraction.find_last_not_of('0') + 1);  // npos + 1 = 0: all of it
  if (integer.empty() && fraction.empty()) return "0";
  Decimal out = negative ? "-" : "";
  out += integer.empty() ? "0" : integer;
  if (!fraction.empty()) out += "." + fraction;
  return out;
}

}  // namespace

std::optional<Decimal> LastNumber(absl::string_view text) {
  bool found = false;
  size_t begin = 0;
  std::string integer, fraction;
  int exponent = 0;
  for (size_t i = 0; i < text.size();) {
    const bool fraction_first = text[i] == '.' && DigitAt(text, i + 1);
    if (!DigitAt(text, i) && !fraction_first) {
      ++i;
      continue;
    }
    found = true;
    begin = i;
    i = ScanInteger(text, i, &integer);
    fraction.clear();
    if (i < text.size() && text[i] == '.' && DigitAt(text, i + 1)) {
      const size_t end = SkipDigits(text, i + 1);
      fraction.assign(text.data() + i + 1, end - i - 1);
      i = end;
    }
    exponent = ScanExponent(text, &i);
  }
  if (!found) return std::nullopt;
  return Normalized(IsNegative(text.substr(0, begin)), std::move(integer), std::move(fraction),
                    exponent);
}

}  // namespace tandem::reward
