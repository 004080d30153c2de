#include "common/io/stream_digest.h"

#include <errno.h>
#include <unistd.h>
#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::io {

StreamDigest::StreamDigest() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

void StreamDigest::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void StreamDigest::Update(absl::string_view bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string StreamDigest::Hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

absl::StatusOr<std::string> DigestFile(const std::string& path) {
  ASSIGN_OR_RETURN(const FileDescriptor fd, OpenRegularFile(path));
  StreamDigest digest;
  std::string piece(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path, "read");
    if (count == 0) return digest.Hex();
    digest.Update(absl::string_view(piece).substr(0, static_cast<size_t>(count)));
  }
}

}  // namespace tandem::io
