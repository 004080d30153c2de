// FolderLock: one process at a time writes into a folder.
//
//   ASSIGN_OR_RETURN(io::FolderLock lock, io::FolderLock::Acquire(run_dir, {}));
//   ...
//   RETURN_IF_ERROR(lock.Check());  // before a write: the folder is there, and still ours
//
// The lock is the kernel's, on an open file run.lock in the folder (an open-file-description lock),
// so it ends with the process however that ends, and children, which do not inherit the file, never
// keep it. NFS, CIFS, Lustre with -o flock and most other shared file systems pass such locks on to
// their server, so they hold between hosts. Some do not (a local lock manager, FUSE, Lustre without
// flock). Therefore the file also says who holds it, and the holder renews the file's time while it
// lives: who gets the kernel's lock, but finds a record of another machine, first watches the time
// for a while, and refuses where it moves. Where a file system has no locks at all the record and
// its time are all there is; of two processes that take the folder within the same instant one then
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

// Owned and used by one thread; a thread of its own renews the file. Released at destruction, which
// removes the file.
class FolderLock {
 public:
  struct Options {
    absl::Duration renewal = absl::Seconds(5);
    // For so long the lock of another machine must stand still to be taken over.
    absl::Duration patience = absl::Seconds(30);
    // Told of a lock that is taken over or watched.
    std::function<void(const std::string&)> note;
    // Asked while another's lock is watched; true ends that with CANCELLED.
    std::function<bool()> interrupted;
    // Waits between two looks at another's lock. Null: sleeps.
    std::function<void(absl::Duration)> wait;
    // False: as on a file system without locks.
    bool use_kernel_lock = true;
  };

  // The folder must exist. FAILED_PRECONDITION says which process holds the folder (pid, host,
  // since when) and what to do.
  static absl::StatusOr<FolderLock> Acquire(const std::string& folder, const Options& options);

  FolderLock(FolderLock&&) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  // NOT_FOUND where the folder or its lock file is gone, FAILED_PRECONDITION where another file is
  // in its place: what is written now is lost, or mixed with what another process writes. Costs two
  // system calls.
  absl::Status Check() const;

 private:
  class Holder;
  explicit FolderLock(std::unique_ptr<Holder> holder);

  std::unique_ptr<Holder> holder_;
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_FOLDER_LOCK_H_
