// SpaceReserve: reserves disk space for a file to be written later, so that a full disk is an error
// at the start and not at the end.
//
//   ASSIGN_OR_RETURN(io::SpaceReserve space,
//                    io::SpaceReserve::Take(run_dir, model_bytes, "the model"));
//   ...
//   space.Release();  // just before the file is written
#ifndef TANDEM_COMMON_IO_SPACE_RESERVE_H_
#define TANDEM_COMMON_IO_SPACE_RESERVE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/host/file_descriptor.h"

namespace tandem::io {

// Move-only; one thread at a time. An unnamed file holds the space, which is free again when the
// process ends for any reason.
class SpaceReserve {
 public:
  // Reserves `size_bytes` on the file system of `folder`, which exists, for `purpose` ("the
  // model"). RESOURCE_EXHAUSTED says how many bytes are needed and how many are free. If the file
  // system cannot allocate ahead, reserves nothing, and Check() looks at the free space.
  static absl::StatusOr<SpaceReserve> Take(const std::string& folder, int64_t size_bytes,
                                           const std::string& purpose);

  // RESOURCE_EXHAUSTED if the space is no longer available. Always OK while it is held.
  absl::Status Check() const;

  bool is_held() const { return file_.is_open(); }
  void Release() { file_ = host::FileDescriptor(); }

 private:
  SpaceReserve(std::string folder, int64_t size_bytes, std::string purpose)
      : folder_(std::move(folder)), size_bytes_(size_bytes), purpose_(std::move(purpose)) {}
  absl::Status CheckFree() const;
  absl::Status Lacking() const;

  std::string folder_;
  int64_t size_bytes_;
  std::string purpose_;
  host::FileDescriptor file_;  // holds the space
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_SPACE_RESERVE_H_
