#include "common/io/whole_lines.h"

#include <errno.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;

}  // namespace

absl::Status ForEachWholeLine(const std::string& path, int64_t offset,
                              const std::function<bool(absl::string_view line)>& fn,
                              int64_t max_line_bytes) {
  ASSIGN_OR_RETURN(const host::FileDescriptor file, OpenRegularFile(path));
  std::string buffer;  // the line that has begun, and what follows it
  size_t begin = 0;    // of the line
  size_t searched = 0;
  while (true) {
    const size_t end = buffer.find('\n', searched);
    const size_t length = (end == std::string::npos ? buffer.size() : end) - begin;
    if (length > static_cast<size_t>(max_line_bytes)) {
      const auto place = offset - static_cast<int64_t>(buffer.size() - begin);
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": byte ", place, ": expected a line of at most ", max_line_bytes,
                       " bytes, found a longer one"));
    }
    if (end != std::string::npos) {
      if (!fn(absl::string_view(buffer).substr(begin, length))) return absl::OkStatus();
      begin = searched = end + 1;
      continue;
    }
    buffer.erase(0, begin);
    begin = 0;
    searched = buffer.size();
    buffer.resize(searched + kReadBytes);
    ssize_t count = -1;
    do {
      count = ::pread(file.get(), buffer.data() + searched, kReadBytes, offset);
    } while (count < 0 && errno == EINTR);
    if (count < 0) return ErrnoStatus(path, "read");
    if (count == 0) return absl::OkStatus();
    offset += count;
    buffer.resize(searched + static_cast<size_t>(count));
  }
}

}  // namespace tandem::io
