// Regular expressions of tokenizer.json, run by PCRE2 with its JIT.
//
//   ASSIGN_OR_RETURN(Regex regex, Regex::Compile("\\p{N}|\\s+"));
//   std::vector<Match> matches;
//   RETURN_IF_ERROR(regex.FindAll(text, &matches));
//
// Immutable after Compile(); any number of threads may search at once.
#ifndef TANDEM_COMMON_TOKENIZER_REGEX_H_
#define TANDEM_COMMON_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Bytes [begin, end).
struct Match {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  // `pattern` is in Oniguruma's Ruby syntax. InvalidArgument when it is malformed, Unimplemented
  // when it holds a construct that PCRE2 cannot express.
  static absl::StatusOr<Regex> Compile(absl::string_view pattern);
  // Matches `literal` itself; an empty one never matches.
  static Regex Literal(absl::string_view literal);

  // Appends the successive, non-overlapping matches in `text`, which must be valid UTF-8. An empty
  // match is not reported right behind another match. ResourceExhausted when the pattern
  // backtracks beyond PCRE2's limits.
  absl::Status FindAll(absl::string_view text, std::vector<Match>* matches) const;

  // Replaces every match in `text` with `content`. If the result is longer than `max_bytes`, sets
  // `*fits` to false; then do not use the result.
  absl::StatusOr<std::string> ReplaceAll(absl::string_view text, absl::string_view content,
                                         size_t max_bytes, bool* fits) const;

 private:
  struct Code;
  Regex() = default;
  // Calls `found(match)` until it returns false.
  template <typename Found>
  absl::Status ForEachMatch(absl::string_view text, Found found) const;

  std::string literal_;
  std::string pattern_;
  std::shared_ptr<const Code> code_;  // null for a literal
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_REGEX_H_
