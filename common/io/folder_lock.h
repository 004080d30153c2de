// FolderLock: lets one process at a time write into a folder.
//
//   ASSIGN_OR_RETURN(io::FolderLock lock, io::FolderLock::Acquire(run_dir, {}));
//   ...
//   RETURN_IF_ERROR(lock.Check());  // before a write: the folder exists and is still ours
//
// The kernel holds the lock on an open file run.lock in the folder (an open-file-description lock),
// so it ends with the process for any reason, and children, which do not inherit the file, never
// keep it. NFS, CIFS, Lustre with -o flock and most other shared file systems forward such locks to
// their server, so they hold between hosts. Some do not (a local lock manager, FUSE, Lustre without
// flock). Therefore the file also names its holder, who renews the file's time while it lives. A
// process that gets the kernel's lock but finds a record from another machine first watches that
// time for a while, and refuses if it changes. On a file system without locks, only the record and
// its time protect the folder; if two processes take it at the same instant, one finds out at its
// next Check().
// finds out at its next Check().
#ifndef TANDEM_COMMON_IO_FOLDER_LOCK_H_
#define TANDEM_COMMON_IO_FOLDER_LOCK_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem::io {

inline constexpr char kLockFile[] = "run.lock";

// Owned and used by one thread; its own thread renews the file. The destructor releases the lock
// and removes the file.
class FolderLock {
 public:
  struct Options {
    absl::Duration renewal = absl::Seconds(5);
    // How long the record of another machine must stay unchanged before it is taken over.
    absl::Duration patience = absl::Seconds(30);
    // Receives a message when a lock is taken over or watched.
    std::function<void(const std::string&)> note;
    // Polled while another process's lock is watched; returning true ends that with CANCELLED.
    std::function<bool()> interrupted;
    // Waits between two checks of another process's lock. Null: sleeps.
    std::function<void(absl::Duration)> wait;
    // False: behaves as on a file system without locks.
    bool use_kernel_lock = true;
  };

  // The folder must exist. FAILED_PRECONDITION names the process that holds the folder (pid, host,
  // since when) and what to do.
  static absl::StatusOr<FolderLock> Acquire(const std::string& folder, const Options& options);

  // Whether a process holds the folder now, as far as can be seen without waiting: the kernel's
  // lock, or on file systems without locks a holder that runs here, or a record of another machine
  // renewed within Options::patience. Changes nothing.
  static bool IsHeld(const std::string& folder);

  FolderLock(FolderLock&&) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  // NOT_FOUND if the folder or its lock file is gone, FAILED_PRECONDITION if another file has
  // replaced it: new writes would be lost, or mixed with another process's. Costs two system calls.
  absl::Status Check() const;

 private:
  class Holder;
  explicit FolderLock(std::unique_ptr<Holder> holder);

  std::unique_ptr<Holder> holder_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_FOLDER_LOCK_H_
