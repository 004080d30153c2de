#include "common/tokenizer/code_point_set.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

constexpr absl::string_view kSpaceBody =
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
    "\\x{2000}-\\x{200a}";

// Code points that PCRE2's properties lack besides newly assigned letters.
constexpr absl::string_view kMoreAlphabetic =
    "\\x{363}-\\x{36f}\\x{897}\\x{c04}\\x{cf3}\\x{f82}-\\x{f83}\\x{1dd3}-\\x{1de6}\\x{10d69}\\x{"
    "10efc}"
    "\\x{11080}-\\x{11081}\\x{11241}\\x{113b8}-\\x{113c0}\\x{113c2}\\x{113c5}\\x{113c7}-\\x{113ca}"
    "\\x{113cc}-\\x{113cd}\\x{11f00}-\\x{11f01}\\x{11f03}\\x{11f34}-\\x{11f3a}\\x{11f3e}-\\x{11f40}"
    "\\x{1e08f}\\x{1611e}-\\x{1612e}";
constexpr absl::string_view kMoreLowercase =
    "\\x{10fc}\\x{ab69}\\x{a7f2}-\\x{a7f4}\\x{1e030}-\\x{1e06d}";

struct CategoryName {
  const char* name;
  Category category;
};
constexpr CategoryName kCategoryNames[] = {
    {"Lu", kLu}, {"Ll", kLl}, {"Lt", kLt}, {"Lm", kLm}, {"Lo", kLo}, {"Mn", kMn}, {"Mc", kMc},
    {"Me", kMe}, {"Nd", kNd}, {"Nl", kNl}, {"No", kNo}, {"Pc", kPc}, {"Pd", kPd}, {"Ps", kPs},
    {"Pe", kPe}, {"Pi", kPi}, {"Pf", kPf}, {"Po", kPo}, {"Sm", kSm}, {"Sc", kSc}, {"Sk", kSk},
    {"So", kSo}, {"Zs", kZs}, {"Zl", kZl}, {"Zp", kZp}, {"Cc", kCc}, {"Cf", kCf}, {"Co", kCo},
};

// "Letter" -> "l" and so on; the keys are folded as Fold() does.
const absl::flat_hash_map<std::string, std::string>& LongNames() {
  static const auto* const names = new absl::flat_hash_map<std::string, std::string>{
      {"letter", "l"},
      {"uppercaseletter", "lu"},
      {"lowercaseletter", "ll"},
      {"titlecaseletter", "lt"},
      {"modifierletter", "lm"},
      {"otherletter", "lo"},
      {"mark", "m"},
      {"combiningmark", "m"},
      {"nonspacingmark", "mn"},
      {"spacingmark", "mc"},
      {"enclosingmark", "me"},
      {"number", "n"},
      {"decimalnumber", "nd"},
      {"digit", "nd"},
      {"d", "nd"},
      {"letternumber", "nl"},
      {"othernumber", "no"},
      {"punctuation", "p"},
      {"connectorpunctuation", "pc"},
      {"dashpunctuation", "pd"},
      {"openpunctuation", "ps"},
      {"closepunctuation", "pe"},
      {"initialpunctuation", "pi"},
      {"finalpunctuation", "pf"},
      {"otherpunctuation", "po"},
      {"symbol", "s"},
      {"mathsymbol", "sm"},
      {"currencysymbol", "sc"},
      {"modifiersymbol", "sk"},
      {"othersymbol", "so"},
      {"separator", "z"},
      {"spaceseparator", "zs"},
      {"lineseparator", "zl"},
      {"paragraphseparator", "zp"},
      {"control", "cc"},
      {"cntrl", "cc"},
      {"format", "cf"},
      {"privateuse", "co"},
      {"upper", "uppercase"},
      {"lower", "lowercase"},
      {"alpha", "alphabetic"},
      {"space", "whitespace"},
      {"xdigit", "asciihexdigit"},
  };
  return *names;
}

std::string Fold(absl::string_view name) {
  std::string folded;
  for (char c : name) {
    if (c != ' ' && c != '_' && c != '-') folded.push_back(absl::ascii_tolower(c));
  }
  return folded;
}

// Code points that Unicode 15 and 16 assigned to the categories that start with `prefix` ("L",
// "Nd").
std::string Additions(absl::string_view prefix) {
  std::string body;
  for (const CategoryRange& range : AssignedSinceUnicode14()) {
    for (const CategoryName& name : kCategoryNames) {
      if (name.category == range.category &&
          absl::string_view(name.name).substr(0, prefix.size()) == prefix) {
        absl::StrAppendFormat(&body, "\\x{%x}-\\x{%x}", static_cast<uint32_t>(range.first),
                              static_cast<uint32_t>(range.last));
      }
    }
  }
  return body;
}

std::string CategoryBody(absl::string_view category) {
  return absl::StrCat(Additions(category), "\\p{", category, "}");
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::unique_ptr<pcre2_code, FreeCode> CompileClass(const std::string& body) {
  const std::string pattern = absl::StrCat("[", body, "]");
  int error;
  PCRE2_SIZE offset;
  return std::unique_ptr<pcre2_code, FreeCode>(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr));
}

// Categories that include unassigned code points shrink as Unicode grows.
std::optional<std::string> ShrunkBody(absl::string_view category) {
  CodePointSet since;
  for (const CategoryRange& range : AssignedSinceUnicode14()) {
    if (!(category == "C" && range.category == kCf)) since.Add(range.first, range.last);
  }
  std::optional<CodePointSet> all = EvaluateClassBody(absl::StrCat("\\p{", category, "}"));
  if (!all.has_value()) return std::nullopt;
  return all->Intersect(since.Complement()).ToClassBody();
}

}  // namespace

void CodePointSet::Merge() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

void CodePointSet::Add(char32_t first, char32_t last) {
  if (!ranges_.empty() && first > ranges_.back().last + 1) {
    ranges_.push_back({first, last});
    return;
  }
  ranges_.push_back({first, last});
  Merge();
}

void CodePointSet::Add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Merge();
}

CodePointSet CodePointSet::Complement() const {
  CodePointSet with_surrogates = *this;
  with_surrogates.Add(kFirstSurrogate, kLastSurrogate);
  CodePointSet out;
  char32_t next = 0;
  for (const Range& range : with_surrogates.ranges_) {
    if (range.first > next) out.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCodePoint) out.ranges_.push_back({next, kLastCodePoint});
  return out;
}

CodePointSet CodePointSet::Intersect(const CodePointSet& other) const {
  CodePointSet either = Complement();
  either.Add(other.Complement());
  return either.Complement();
}

std::string CodePointSet::ToClassBody() const {
  std::string body;
  for (const Range& range : ranges_) {
    absl::StrAppendFormat(&body, "\\x{%x}-\\x{%x}", static_cast<uint32_t>(range.first),
                          static_cast<uint32_t>(range.last));
  }
  return body;
}

std::optional<std::string> PropertyClassBody(absl::string_view name, bool in_set) {
  std::string folded = Fold(name);
  if (const auto it = LongNames().find(folded); it != LongNames().end()) folded = it->second;
  if (folded == "whitespace" || name == "s") return std::string(kSpaceBody);
  if (name == "h" || folded == "asciihexdigit") return std::string("0-9A-Fa-f");
  if (name == "w" || folded == "word") {
    // Outside of a set, Oniguruma's \w also holds the superscript digits and fractions of Latin-1.
    return absl::StrCat(in_set ? "" : "\\x{b2}-\\x{b3}\\x{b9}\\x{bc}-\\x{be}",
                        "\\x{24b6}-\\x{24e9}",
                        "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}",
                        CategoryBody("L"), CategoryBody("M"), CategoryBody("Nd"), "\\p{Nl}\\p{Pc}");
  }
  if (folded == "alnum") {
    return absl::StrCat(kMoreAlphabetic, CategoryBody("L"), CategoryBody("Nd"), "\\p{Alphabetic}");
  }
  if (folded == "alphabetic") {
    return absl::StrCat(kMoreAlphabetic, CategoryBody("L"), "\\p{Alphabetic}");
  }
  if (folded == "uppercase") return absl::StrCat(Additions("Lu"), "\\p{uppercase}");
  if (folded == "lowercase") {
    return absl::StrCat(kMoreLowercase, Additions("Ll"), "\\p{lowercase}");
  }
  if (folded == "punct") return CategoryBody("P");
  if (folded == "any") return std::string("\\x{0}-\\x{10ffff}");
  if (folded == "ascii") return std::string("\\x{0}-\\x{7f}");
  if (folded == "c" || folded == "other") return ShrunkBody("C");
  if (folded == "cn" || folded == "unassigned") return ShrunkBody("Cn");
  for (absl::string_view group : {"L", "M", "N", "P", "S", "Z"}) {
    if (folded == absl::AsciiStrToLower(group)) return CategoryBody(group);
  }
  for (const CategoryName& category : kCategoryNames) {
    if (folded == absl::AsciiStrToLower(category.name)) return CategoryBody(category.name);
  }
  // Scripts. PCRE2's bare names mean script extensions.
  std::string script = absl::StrCat("\\p{sc:", folded, "}");
  if (folded == "han") {
    script =
        absl::StrCat("\\x{2b739}-\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}", script);
  }
  if (folded == "hiragana") script = absl::StrCat("\\x{1b132}-\\x{1b132}", script);
  if (folded == "latin") {
    script = absl::StrCat("\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{1df25}-\\x{1df2a}", script);
  }
  const bool plain = std::all_of(folded.begin(), folded.end(), absl::ascii_isalnum);
  if (plain && CompileClass(script) != nullptr) return script;
  std::string property = absl::StrCat("\\p{", folded, "}");
  if (plain && CompileClass(property) != nullptr) return property;
  return std::nullopt;
}

std::optional<CodePointSet> EvaluateClassBody(const std::string& body) {
  CodePointSet set;
  if (body.empty()) return set;
  const auto code = CompileClass(body);
  if (code == nullptr) return std::nullopt;
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::unique_ptr<pcre2_match_data, FreeCode> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  if (data == nullptr) return std::nullopt;
  char32_t first = 0;
  bool inside = false;
  std::string utf8;
  for (char32_t c = 0; c <= kLastCodePoint + 1; ++c) {
    bool member = false;
    if (c <= kLastCodePoint && (c < kFirstSurrogate || c > kLastSurrogate)) {
      utf8.clear();
      AppendUtf8(c, &utf8);
      member = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(utf8.data()), utf8.size(), 0,
                           PCRE2_NO_UTF_CHECK, data.get(), nullptr) >= 0;
    }
    if (member && !inside) first = c;
    if (!member && inside) set.Add(first, c - 1);
    inside = member;
  }
  return set;
}

}  // namespace tandem::tokenizer
