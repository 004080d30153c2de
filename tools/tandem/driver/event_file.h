// EventFile: a run's metrics in TensorBoard's format: records of tensorboard.Event messages, each
// with one scalar per metric.
//
// A record (TensorFlow's TFRecord): length uint64, masked CRC-32C of the length uint32, the
// message, masked CRC-32C of the message uint32; all little-endian.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EVENT_FILE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EVENT_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"

namespace tandem::driver {

// CRC-32C (Castagnoli), as in RFC 3720.
uint32_t Crc32c(absl::string_view bytes);

// Used by one thread.
class EventFile {
 public:
  // Creates a new file in `folder`, and the folder if it is missing. TensorBoard merges the files
  // of a folder.
  static absl::StatusOr<EventFile> Create(const std::string& folder);

  // Appends one event; skips values that are not finite.
  absl::Status Append(absl::Time time, int64_t step, const std::map<std::string, double>& values);

 private:
  EventFile(std::string path, host::FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::Status WriteRecord(absl::string_view event);

  std::string path_;
  host::FileDescriptor file_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EVENT_FILE_H_
