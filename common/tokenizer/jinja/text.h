// Python's text functions, for templates: white space, and positions counted in code points.
#ifndef TANDEM_COMMON_TOKENIZER_JINJA_TEXT_H_
#define TANDEM_COMMON_TOKENIZER_JINJA_TEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::tokenizer::jinja {

bool IsPythonSpace(char32_t c);

enum class Side { kLeft, kRight, kBoth };
// str.strip() and its variants: strips white space, or the characters of `characters`.
absl::string_view Strip(absl::string_view text, Side side,
                        std::optional<absl::string_view> characters = std::nullopt);

// Offsets where code points start, and the end.
std::vector<size_t> CodePointOffsets(absl::string_view text);

std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
// "hello WORLD" -> "Hello world"; "Hello World" for every word.
std::string Capitalize(absl::string_view text);
std::string Title(absl::string_view text);

// str.split() and str.rsplit(); without a separator, splits at runs of white space. A negative
// limit means no limit.
std::vector<std::string> SplitText(absl::string_view text,
                                   std::optional<absl::string_view> separator, int64_t limit,
                                   bool from_right);
std::vector<std::string> SplitLines(absl::string_view text, bool keep_ends);

}  // namespace tandem::tokenizer::jinja

#endif  // TANDEM_COMMON_TOKENIZER_JINJA_TEXT_H_
