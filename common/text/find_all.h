// FindAll: where a text holds another.
//
//   text::FindAll("a, b, c", ", ");   // {1, 4}
#ifndef TANDEM_COMMON_TEXT_FIND_ALL_H_
#define TANDEM_COMMON_TEXT_FIND_ALL_H_

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::text {

// The first bytes of the places, which do not overlap, in order. None for an empty `needle`.
inline std::vector<size_t> FindAll(absl::string_view text, absl::string_view needle) {
  std::vector<size_t> places;
  if (needle.empty()) return places;
  for (size_t at = text.find(needle); at != text.npos; at = text.find(needle, at + needle.size())) {
    places.push_back(at);
  }
  return places;
}

}  // namespace tandem::text

#endif  // TANDEM_COMMON_TEXT_FIND_ALL_H_
