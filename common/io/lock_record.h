// What the holder of a folder's lock writes into the lock file: who it is, for those that find the
// folder taken, and for telling a process that has ended from one that goes on elsewhere.
#ifndef TANDEM_COMMON_IO_LOCK_RECORD_H_
#define TANDEM_COMMON_IO_LOCK_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

struct LockRecord {
  int64_t pid = 0;
  int64_t start_ticks = 0;    // of the process, since the host's boot: a pid may come round again
  std::string pid_namespace;  // in which the pid counts
  std::string host;
  std::string boot_id;  // of the host's kernel: two that share it see each other's file locks
  std::string since;    // RFC 3339, UTC

  bool operator==(const LockRecord& other) const = default;
};

// Of this process, now.
LockRecord OwnLockRecord();

// One line of JSON.
std::string ToText(const LockRecord& record);

// INVALID_ARGUMENT, with `place`, where the text is none.
absl::StatusOr<LockRecord> ParseLockRecord(absl::string_view text, const std::string& place);

// "process 123 on host node-1, since 2026-11-23T03:28:19Z"
std::string Describe(const LockRecord& record);

// Whether a process of this kernel and pid namespace goes on: the one of that pid and start.
bool IsRunning(const LockRecord& record);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_LOCK_RECORD_H_
