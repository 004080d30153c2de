// The record that the holder of a folder's lock writes into the lock file. It names the holder to
// processes that find the folder taken, and tells a dead holder from one that runs elsewhere.
#ifndef TANDEM_COMMON_IO_LOCK_RECORD_H_
#define TANDEM_COMMON_IO_LOCK_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

struct LockRecord {
  int64_t pid = 0;
  int64_t start_ticks = 0;    // start time, since the host's boot: pids are reused
  std::string pid_namespace;  // the namespace of the pid
  std::string host;
  std::string boot_id;  // of the host's kernel: processes that share it see each other's file locks
  std::string since;    // RFC 3339, UTC

  bool operator==(const LockRecord& other) const = default;
};

// The record of this process, now.
LockRecord OwnLockRecord();

// One line of JSON.
std::string ToText(const LockRecord& record);

// INVALID_ARGUMENT, with `place`, if the text is no record.
absl::StatusOr<LockRecord> ParseLockRecord(absl::string_view text, const std::string& place);

// "process 123 on host node-1, since 2026-11-23T03:28:19Z"
std::string Describe(const LockRecord& record);

// Whether that process (same pid and start time) still runs in this kernel and pid namespace.
bool IsRunning(const LockRecord& record);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_LOCK_RECORD_H_
