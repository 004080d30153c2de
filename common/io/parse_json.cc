#include "common/io/parse_json.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace tandem::io {

absl::Status CheckJsonDepth(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) {
        return absl::InvalidArgumentError(absl::StrCat("expected JSON of at most ", kMaxJsonDepth,
                                                       " levels, found more at byte ", i));
      }
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return absl::OkStatus();
}

std::string JsonProblem(const std::exception& error) {
  constexpr size_t kLongest = 300;
  const std::string text = error.what();
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace tandem::io
