#include "common/io/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/hash/hasher.h"
#include "common/io/file_util.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::io {

namespace {

absl::StatusOr<std::string> ReadAll(const host::FileDescriptor& fd, const std::string& path,
                                    int64_t max_bytes) {
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(path, "stat");
  const auto too_large = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": expected at most ", max_bytes, " bytes, found more"));
  };
  if (S_ISREG(info.st_mode) && info.st_size > max_bytes) return too_large();

  std::string bytes;
  size_t piece = S_ISREG(info.st_mode) ? static_cast<size_t>(info.st_size) + 1 : size_t{64} << 10;
  while (true) {
    const size_t before = bytes.size();
    bytes.resize(before + piece);
    const ssize_t count = ::read(fd.get(), bytes.data() + before, piece);
    if (count < 0 && errno != EINTR) return ErrnoStatus(path, "read");
    bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (static_cast<int64_t>(bytes.size()) > max_bytes) return too_large();
    if (count == 0) return bytes;
    piece = size_t{64} << 10;
  }
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const host::FileDescriptor fd, OpenRegularFile(path));
  return ReadAll(fd, path, max_bytes);
}

absl::StatusOr<std::string> ReadInput(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const host::FileDescriptor fd, OpenFile(path, O_RDONLY, 0, "read"));
  return ReadAll(fd, path, max_bytes);
}

absl::StatusOr<std::string> DigestFile(const std::string& path) {
  ASSIGN_OR_RETURN(const host::FileDescriptor fd, OpenRegularFile(path));
  hash::Hasher hasher;
  std::string piece(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoStatus(path, "read");
    if (count == 0) return hasher.Hex();
    hasher.Update(piece.data(), static_cast<size_t>(count));
  }
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path, max_bytes));
  absl::StatusOr<nlohmann::json> value = ParseJson<nlohmann::json>(text);
  if (!value.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected JSON: ", value.status().message()));
  }
  if (!value->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a JSON object, found ", value->type_name()));
  }
  return value;
}

}  // namespace tandem::io
