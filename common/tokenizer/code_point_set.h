// Sets of Unicode code points, and the named ones that patterns use.
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

  // As the inside of a PCRE2 character class: "\x{61}-\x{7a}...". Empty when the set is.
  std::string ToClassBody() const;

 private:
  struct Range {
    char32_t first;
    char32_t last;
  };
  void Merge();
  std::vector<Range> ranges_;
};

// The inside of a PCRE2 class for a property by its name in \p{...} (case, spaces, '-' and '_' do
// not matter) or for a short form "w", "d", "s", "h". As Oniguruma 6.9.10 (Unicode 16) has it. It
// starts and ends so that a '-' beside it cannot make a range of it. `in_set`: the escape stands in
// brackets, where Oniguruma's \w is a little smaller. Nullopt when the name is unknown.
std::optional<std::string> PropertyClassBody(absl::string_view name, bool in_set);

// The members of a class body, found by asking PCRE2 about every code point (some 50 ms).
std::optional<CodePointSet> EvaluateClassBody(const std::string& body);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_CODE_POINT_SET_H_
