#include "common/io/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

using nlohmann::json;

constexpr size_t kReadBytes = size_t{256} << 10;

// Splits its input into lines; holds one line and one read at most.
class LineReader {
 public:
  LineReader(ByteSource& source, int64_t max_line_bytes)
      : source_(source), max_line_bytes_(max_line_bytes) {}

  // Returns false at the end of the file. `line` is valid until the next call; `complete`: the line
  // had its newline.
  absl::StatusOr<bool> Next(absl::string_view* line, bool* complete) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
    size_t searched = 0;
    while (true) {
      const size_t end = buffer_.find('\n', searched);
      searched = buffer_.size();
      const size_t length = end == std::string::npos ? buffer_.size() : end;
      if (length > static_cast<size_t>(max_line_bytes_)) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "expected lines of at most ", max_line_bytes_, " bytes, found a longer one"));
      }
      if (end != std::string::npos || at_end_) {
        if (end == std::string::npos && buffer_.empty()) return false;
        *line = absl::string_view(buffer_).substr(0, length);
        *complete = end != std::string::npos;
        consumed_ = *complete ? end + 1 : length;
        return true;
      }
      RETURN_IF_ERROR(Fill());
    }
  }

 private:
  absl::Status Fill() {
    const size_t before = buffer_.size();
    buffer_.resize(before + kReadBytes);
    absl::StatusOr<size_t> count = source_.Read(buffer_.data() + before, kReadBytes);
    buffer_.resize(before + (count.ok() ? *count : 0));
    RETURN_IF_ERROR(count.status());
    at_end_ = *count == 0;
    return absl::OkStatus();
  }

  ByteSource& source_;
  int64_t max_line_bytes_;
  std::string buffer_;
  size_t consumed_ = 0;
  bool at_end_ = false;
};

absl::StatusOr<json> ParseObject(absl::string_view line) {
  absl::StatusOr<json> value = ParseJson<json>(line);
  if (!value.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JSON object: ", value.status().message()));
  }
  if (value->is_object()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("expected a JSON object, found ", Describe(*value)));
}

// The offset of the last line if it lacks its newline; otherwise the size of the file.
absl::StatusOr<int64_t> TornTailOffset(int fd, int64_t size, const std::string& path) {
  char block[4096];
  int64_t end = size;
  while (end > 0) {
    const int64_t begin = std::max<int64_t>(0, end - static_cast<int64_t>(sizeof(block)));
    const ssize_t count = ::pread(fd, block, static_cast<size_t>(end - begin), begin);
    if (count < 0 && errno == EINTR) continue;
    if (count != end - begin) return ErrnoStatus(path, "read its tail");
    for (int64_t i = count - 1; i >= 0; --i) {
      if (block[i] == '\n') return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

absl::Status ForEachJsonLine(const std::string& path,
                             const std::function<absl::Status(const JsonFields& row)>& fn,
                             const JsonlOptions& options) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd, options.regular_file
                                                ? OpenRegularFile(path)
                                                : OpenFile(path, O_RDONLY, 0, "read"));
  FileSource source(std::move(fd), path);
  return ForEachJsonLine(source, path, fn, options);
}

absl::Status ForEachJsonLine(ByteSource& source, const std::string& path,
                             const std::function<absl::Status(const JsonFields& row)>& fn,
                             const JsonlOptions& options) {
  LineReader reader(source, options.max_line_bytes);
  for (int64_t number = 1;; ++number) {
    const std::string place = absl::StrCat(path, ":", number);
    absl::string_view line;
    bool complete = false;
    absl::StatusOr<bool> more = reader.Next(&line, &complete);
    if (!more.ok()) return AtPlace(place, more.status());
    if (!*more) return absl::OkStatus();
    if (number == 1 && absl::StartsWith(line, "\xEF\xBB\xBF")) line.remove_prefix(3);
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    absl::StatusOr<json> object = ParseObject(line);
    if (!object.ok()) {
      if (!complete && options.ignore_torn_tail) return absl::OkStatus();
      return AtPlace(place, object.status());
    }
    absl::Status status = fn(JsonFields(*object, place, line));
    if (!status.ok()) {
      return absl::StartsWith(status.message(), place) ? status : AtPlace(place, status);
    }
  }
}

absl::StatusOr<std::vector<json>> ReadJsonLines(const std::string& path,
                                                const JsonlOptions& options) {
  std::vector<json> rows;
  RETURN_IF_ERROR(ForEachJsonLine(
      path,
      [&rows](const JsonFields& row) {
        rows.push_back(row.json());
        return absl::OkStatus();
      },
      options));
  return rows;
}

std::string ToJsonLine(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

absl::StatusOr<JsonlWriter> JsonlWriter::Open(const std::string& path) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd,
                   OpenFile(path, O_RDWR | O_CREAT | O_APPEND | O_NONBLOCK, 0666, "append"));
  RETURN_IF_ERROR(CheckIsRegular(fd.get(), path));
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(path, "stat");
  if (info.st_size > 0) {
    ASSIGN_OR_RETURN(const int64_t tail, TornTailOffset(fd.get(), info.st_size, path));
    if (tail < info.st_size && ::ftruncate(fd.get(), tail) != 0) {
      return ErrnoStatus(path, "cut off its torn last line");
    }
  }
  return JsonlWriter(path, std::move(fd));
}

absl::Status JsonlWriter::Append(const json& object) {
  struct stat before;
  if (::fstat(fd_.get(), &before) != 0) return ErrnoStatus(path_, "stat");
  absl::Status status = WriteAll(fd_.get(), ToJsonLine(object), path_);
  // Half a line would spoil the next one too. If even this fails, the next Open() repairs it.
  if (!status.ok() && ::ftruncate(fd_.get(), before.st_size) != 0) {
    return AtPlace("an incomplete line is left", std::move(status));
  }
  return status;
}

absl::Status JsonlWriter::Sync() {
  if (::fsync(fd_.get()) != 0) return ErrnoStatus(path_, "sync");
  return absl::OkStatus();
}

}  // namespace tandem::io
