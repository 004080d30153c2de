#include "tools/tandem/environment/output_tail.h"

#include <fcntl.h>

#include <array>
#include <cerrno>

namespace tandem::environment {

absl::StatusOr<OutputTail> OutputTail::Open(size_t max_bytes) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  OutputTail out(ends[0], ends[1], max_bytes);
  // The reader's end only: programs expect to wait when a pipe is full.
  if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) {
    return absl::ErrnoToStatus(errno, "cannot set up a pipe");
  }
  return out;
}

bool OutputTail::Read() {
  std::array<char, 16384> buffer;
  while (true) {
    const ssize_t got = ::read(read_end_.get(), buffer.data(), buffer.size());
    if (got == 0) return false;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    text_.append(buffer.data(), static_cast<size_t>(got));
    if (text_.size() > 2 * max_bytes_) text_.erase(0, text_.size() - max_bytes_);
  }
}

}  // namespace tandem::environment
