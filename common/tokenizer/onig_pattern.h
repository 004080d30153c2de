// Translates Oniguruma patterns to PCRE2 patterns.
//
// tokenizer.json holds patterns in Oniguruma's Ruby syntax. Most of it means the same to PCRE2; the
// rest is rewritten here:
//   - \p{..}, \w, \d, \s, \b, \h: Unicode 16, Oniguruma's definitions (PCRE2 10.42 has Unicode 14,
//     its \s holds U+180E, its \w no combining marks)
//   - sets with nested sets, && or negated classes inside: computed, and written as ranges
//   - (?m) is PCRE2's (?s); ^ and $ always match at line ends; `.` is anything but \n
// A construct that cannot be translated is Unimplemented with its place in the pattern.
#ifndef TANDEM_COMMON_TOKENIZER_ONIG_PATTERN_H_
#define TANDEM_COMMON_TOKENIZER_ONIG_PATTERN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

absl::StatusOr<std::string> TranslateOnigPattern(absl::string_view pattern);

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_ONIG_PATTERN_H_
