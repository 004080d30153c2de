// JSON lines: one object a line, for data sets, rollouts and metrics.
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
#include "common/io/file_util.h"
#include "common/io/json_fields.h"

namespace tandem::io {

struct JsonlOptions {
  int64_t max_line_bytes = int64_t{64} << 20;

  // A last line without its end of line that is no JSON: the writer died while writing it. Files
  // that a run appends to are read with true; in a data set it means that rows are missing, an
  // error.
  bool ignore_torn_tail = false;

  // INVALID_ARGUMENT, at once, for what is no regular file. Files that a run wrote are read with
  // true; false is for inputs that a user names.
  bool regular_file = false;
};

// How a file is read that a run appends to, or has appended to until it was killed.
inline constexpr JsonlOptions kRunFile = {.ignore_torn_tail = true, .regular_file = true};

// Calls `fn` for each line of a file (or pipe, such as /dev/stdin), in order; stops at its first
// error. The row's place is "FILE:LINE"; an error of `fn` that does not begin with it gets it put
// before. Blank lines and a byte order mark are passed over. INVALID_ARGUMENT for a line that is no
// JSON object, RESOURCE_EXHAUSTED for one longer than allowed. Memory: one line.
absl::Status ForEachJsonLine(const std::string& path,
                             const std::function<absl::Status(const JsonFields& row)>& fn,
                             const JsonlOptions& options = {});

// All lines at once.
absl::StatusOr<std::vector<nlohmann::json>> ReadJsonLines(const std::string& path,
                                                          const JsonlOptions& options = {});

// The object as one line, its end included. Bytes that are not UTF-8 become U+FFFD; a number that
// is not finite becomes null.
std::string ToJsonLine(const nlohmann::json& object);

// Appends lines to a file; each is with the kernel when Append() returns, so a reader, or a crash
// of this process, sees it. Owned and used by one thread at a time.
class JsonlWriter {
 public:
  // Makes the file where there is none. A torn last line, left by a crash, is cut off first.
  // INVALID_ARGUMENT for what is no regular file.
  static absl::StatusOr<JsonlWriter> Open(const std::string& path);

  // After failure the file is as before (disk full), as far as the file system allows.
  absl::Status Append(const nlohmann::json& object);

  // Makes all lines durable.
  absl::Status Sync();

  const std::string& path() const { return path_; }

 private:
  JsonlWriter(std::string path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  FileDescriptor fd_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_JSONL_H_
