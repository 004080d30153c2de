// Count: a number with its noun, in the singular where it is one.
//
//   text::Count(1, "replica");                 // "1 replica"
//   text::Count(2, "process", "processes");    // "2 processes"
#ifndef TANDEM_COMMON_TEXT_COUNT_H_
#define TANDEM_COMMON_TEXT_COUNT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tandem::text {

// `plural` is needed where the noun takes more than an s.
inline std::string Count(int64_t count, absl::string_view noun, absl::string_view plural = "") {
  if (count == 1) return absl::StrCat("1 ", noun);
  if (!plural.empty()) return absl::StrCat(count, " ", plural);
  return absl::StrCat(count, " ", noun, "s");
}

}  // namespace tandem::text

#endif  // TANDEM_COMMON_TEXT_COUNT_H_
