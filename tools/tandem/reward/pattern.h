// Pattern: a PCRE2 pattern of a user's, searched for in a model's text.
//
//   ASSIGN_OR_RETURN(const Pattern pattern, Pattern::Compile("Score: (\\d+)", "reward.pattern"));
//   ASSIGN_OR_RETURN(const Pattern::Match match, pattern.Search(text));
//   if (match.is_found) return match.group;
//
// Bounds the work of each search, so that no pattern or text can hang a run: a search that reaches
// the bound counts as not found. The bound is a count, not a time, so that the same input has the
// same result on every machine.
#ifndef TANDEM_TOOLS_TANDEM_REWARD_PATTERN_H_
#define TANDEM_TOOLS_TANDEM_REWARD_PATTERN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct pcre2_real_code_8;

namespace tandem::reward {

// Immutable; copies share the compiled pattern. Any thread may search.
class Pattern {
 public:
  struct Match {
    bool is_found = false;
    std::string group;  // group 1; empty if it took no part in the match
  };

  // `field` names the pattern's origin in errors; `options` are PCRE2's, besides those for UTF-8.
  // INVALID_ARGUMENT for what is no pattern, with the byte, or for one of more than 16 KiB.
  static absl::StatusOr<Pattern> Compile(const std::string& pattern, const std::string& field,
                                         uint32_t options = 0);

  // Returns the first match. Bytes that are no UTF-8 match nothing. RESOURCE_EXHAUSTED if there is no
  // memory.
  absl::StatusOr<Match> Search(const std::string& text) const;

  int num_groups() const;

 private:
  using Code = std::shared_ptr<pcre2_real_code_8>;
  explicit Pattern(Code code) : code_(std::move(code)) {}

  Code code_;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_PATTERN_H_
