// JSON lines: one object per line, for data sets, rollouts and metrics.
//
//   RETURN_IF_ERROR(io::ForEachJsonLine(path, [&](const io::JsonFields& row) -> absl::Status {
//     ASSIGN_OR_RETURN(std::string prompt, row.String("prompt"));  // or "FILE:LINE: prompt: ..."
//     prompts.push_back(std::move(prompt));
//     return absl::OkStatus();
//   }));
//
//   ASSIGN_OR_RETURN(io::JsonlWriter metrics, io::JsonlWriter::Open(run_dir + "/metrics.jsonl"));
//   RETURN_IF_ERROR(metrics.Append({{"step", 1}, {"loss", 0.5}}));
#ifndef TANDEM_COMMON_IO_JSONL_H_
#define TANDEM_COMMON_IO_JSONL_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/byte_source.h"
#include "common/io/file_util.h"
#include "common/io/json_fields.h"

namespace tandem::io {

struct JsonlOptions {
  int64_t max_line_bytes = int64_t{64} << 20;

  // Ignores a last line without a newline that is no JSON: its writer died while writing it. Set
  // for files that a run appends to; in a data set such a line means missing rows, an error.
  bool ignore_torn_tail = false;

  // Returns INVALID_ARGUMENT at once if the path is no regular file. Set for files that a run
  // wrote, not for inputs that a user names.
  bool regular_file = false;
};

// Options for a file that a run appends to, or appended to until it was killed.
inline constexpr JsonlOptions kRunFile = {.ignore_torn_tail = true, .regular_file = true};

// Calls `fn` for each line of a file (or pipe, such as /dev/stdin), in order; stops at its first
// error. The row's place is "FILE:LINE", which is prepended to errors of `fn` that do not begin
// with it. Skips blank lines and a byte order mark. INVALID_ARGUMENT for a line that is no JSON
// object, RESOURCE_EXHAUSTED for one longer than allowed. Memory: one line.
absl::Status ForEachJsonLine(const std::string& path,
                             const std::function<absl::Status(const JsonFields& row)>& fn,
                             const JsonlOptions& options = {});

// Does the same for the lines of `source`, the content of the file `path` ("FILE:LINE").
absl::Status ForEachJsonLine(ByteSource& source, const std::string& path,
                             const std::function<absl::Status(const JsonFields& row)>& fn,
                             const JsonlOptions& options = {});

// Reads all lines at once.
absl::StatusOr<std::vector<nlohmann::json>> ReadJsonLines(const std::string& path,
                                                          const JsonlOptions& options = {});

// Serializes the object as one line with its newline. Bytes that are not UTF-8 become U+FFFD; a
// number that is not finite becomes null.
std::string ToJsonLine(const nlohmann::json& object);

// Appends lines to a file. Each line has reached the kernel when Append() returns, so it is visible
// to readers and survives a crash of this process. Owned and used by one thread at a time.
class JsonlWriter {
 public:
  // Creates the file if needed, and truncates a torn last line that a crash left. INVALID_ARGUMENT
  // if the path is no regular file.
  static absl::StatusOr<JsonlWriter> Open(const std::string& path);

  // After failure (disk full) the file is unchanged, as far as the file system allows.
  absl::Status Append(const nlohmann::json& object);

  // Makes all lines durable.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  JsonlWriter(std::string path, host::FileDescriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  host::FileDescriptor fd_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_JSONL_H_
