// Makes text from peers, models and files safe for a terminal.
//
//   std::fprintf(stderr, "tandem: %s\n", text::Printable(status.message()).c_str());
#ifndef TANDEM_COMMON_TEXT_PRINTABLE_H_
#define TANDEM_COMMON_TEXT_PRINTABLE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tandem::text {

// Returns `text` with everything escaped that could move the cursor, change colors or reorder the
// display: control characters (C0 but for newline and tab, DEL, C1), bidirectional controls, and
// line separators as \uXXXX; bytes that are not UTF-8 as \xXX. Idempotent.
std::string Printable(absl::string_view text);

// Like Printable(), but escapes newlines and tabs as \n and \t: one line stays one line.
std::string PrintableLine(absl::string_view text);

}  // namespace tandem::text

#endif  // TANDEM_COMMON_TEXT_PRINTABLE_H_
