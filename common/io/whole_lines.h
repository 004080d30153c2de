// Lines of a file that another process may be appending to.
//
//   RETURN_IF_ERROR(io::ForEachWholeLine(path, offset, [&](absl::string_view line) {
//     lines.push_back(std::string(line));
//     return lines.size() < 100;  // false stops
//   }));
#ifndef TANDEM_COMMON_IO_WHOLE_LINES_H_
#define TANDEM_COMMON_IO_WHOLE_LINES_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

// Longer lines are errors: a damaged file may have no newline in terabytes.
inline constexpr int64_t kMaxWholeLineBytes = int64_t{64} << 20;

// Calls `fn` with each line from byte `offset` (>= 0) on, without its newline, until `fn` returns
// false. Leaves out a last line without a newline: it is being written. INVALID_ARGUMENT, without
// blocking, if the path is no regular file; RESOURCE_EXHAUSTED for a line longer than
// `max_line_bytes`. Memory: one line.
absl::Status ForEachWholeLine(const std::string& path, int64_t offset,
                              const std::function<bool(absl::string_view line)>& fn,
                              int64_t max_line_bytes = kMaxWholeLineBytes);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_WHOLE_LINES_H_
