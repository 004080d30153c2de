// Sets of Unicode code points, and the named sets that patterns use.
#ifndef TANDEM_COMMON_TOKENIZER_CODE_POINT_SET_H_
#define TANDEM_COMMON_TOKENIZER_CODE_POINT_SET_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Sorted, disjoint ranges of code points without the surrogates. A value; not thread-safe to
// modify.
class CodePointSet {
 public:
  void Add(char32_t first, char32_t last);
  void Add(const CodePointSet& other);
  CodePointSet Complement() const;
  CodePointSet Intersect(const CodePointSet& other) const;
  bool empty() const { return ranges_.empty(); }

  // Formats the set as the body of a PCRE2 character class: "\x{61}-\x{7a}...". Empty for an empty
  // set.
  std::string ToClassBody() const;

 private:
  struct Range {
    char32_t first;
    char32_t last;
  };
  void Merge();
  std::vector<Range> ranges_;
};

// Returns a PCRE2 class body for a property by its name in \p{...} (ignoring case, spaces, '-' and
// '_') or for a short form "w", "d", "s", "h", as defined by Oniguruma 6.9.10 (Unicode 16). The
// body starts and ends so that an adjacent '-' cannot form a range with it. `in_set`: the escape
// stands in brackets, where Oniguruma's \w is a little smaller. Nullopt for an unknown name.
std::optional<std::string> PropertyClassBody(absl::string_view name, bool in_set);

// Finds the members of a class body by matching every code point with PCRE2 (some 50 ms).
std::optional<CodePointSet> EvaluateClassBody(const std::string& body);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_CODE_POINT_SET_H_
