// Reads whole files into memory, never more than the caller allows.
//
//   ASSIGN_OR_RETURN(std::string text, io::ReadFile(path, /*max_bytes=*/1 << 20));
//   ASSIGN_OR_RETURN(nlohmann::json config, io::ReadJsonFile(folder + "/config.json"));
#ifndef TANDEM_COMMON_IO_READ_FILE_H_
#define TANDEM_COMMON_IO_READ_FILE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::io {

inline constexpr int64_t kDefaultMaxFileBytes = int64_t{1} << 30;
inline constexpr int64_t kDefaultMaxJsonBytes = int64_t{256} << 20;

// Reads a regular file. NOT_FOUND and other codes from errno; INVALID_ARGUMENT, without blocking,
// for a FIFO, socket, device or folder; RESOURCE_EXHAUSTED if it has more than `max_bytes`.
// Allocates for the bytes read, not for the size that the file system claims.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     int64_t max_bytes = kDefaultMaxFileBytes);

// Does the same for an input that the user names: a file, or a pipe or device (/dev/stdin,
// `<(command)`), which it reads to its end.
absl::StatusOr<std::string> ReadInput(const std::string& path,
                                      int64_t max_bytes = kDefaultMaxFileBytes);

// Reads a file that holds one JSON object. INVALID_ARGUMENT names the file, line and column.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path,
                                            int64_t max_bytes = kDefaultMaxJsonBytes);

// Returns hash::HexDigest() of a regular file, read piece by piece. Errors like ReadFile().
absl::StatusOr<std::string> DigestFile(const std::string& path);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_READ_FILE_H_
