#include "common/io/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/io/atomic_file.h"
#include "common/io/file_util.h"
#include "common/io/lock_record.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr size_t kMaxRecordBytes = 4096;
constexpr int kAttempts = 100;  // each after another process released its lock in the same instant

bool AreSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

enum class Locked { kYes, kByAnother, kUnsupported };

absl::StatusOr<Locked> TryLock(int fd, const std::string& path) {
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return Locked::kYes;
  switch (errno) {
    case EAGAIN:
    case EACCES:
      return Locked::kByAnother;
    case ENOSYS:
    case EINVAL:
    case ENOLCK:
    case EOPNOTSUPP:
      return Locked::kUnsupported;
    default:
      return ErrnoStatus(path, "lock");
  }
}

// Empty if the file is empty.
absl::StatusOr<std::string> ReadRecord(int fd, const std::string& path) {
  std::string text(kMaxRecordBytes, '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  if (count < 0) return ErrnoStatus(path, "read");
  text.resize(static_cast<size_t>(count));
  return text;
}

absl::Status HeldBy(const std::string& folder, const std::string& record_text) {
  const absl::StatusOr<LockRecord> record = ParseLockRecord(record_text, folder);
  return absl::FailedPreconditionError(
      absl::StrCat(folder, " is in use by ",
                   record.ok() ? Describe(*record) : "a process that has not identified itself yet",
                   "; wait until it ends, stop it, or give this run another run_dir"));
}

// Evidence that a holder renews its lock.
struct Pulse {
  bool is_there = false;
  ino_t file = 0;
  struct timespec time = {};

  bool operator==(const Pulse& other) const {
    return is_there == other.is_there && file == other.file && time.tv_sec == other.time.tv_sec &&
           time.tv_nsec == other.time.tv_nsec;
  }
};

// Reopens the file: that makes network file systems query their server.
Pulse FeelPulse(const std::string& path) {
  const absl::StatusOr<host::FileDescriptor> fd = OpenRegularFile(path);
  struct stat info;
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0) return {};
  return {true, info.st_ino, info.st_mtim};
}

}  // namespace

class FolderLock::Holder {
 public:
  Holder(std::string folder, host::FileDescriptor fd, absl::Duration renewal)
      : folder_(std::move(folder)),
        path_(absl::StrCat(folder_, "/", kLockFile)),
        fd_(std::move(fd)),
        thread_([this, renewal] { Renew(renewal); }) {}

  ~Holder() {
    {
      absl::MutexLock lock(&mu_);
      stops_ = true;
    }
    thread_.join();
    // Unlink before closing releases the lock: the next holder's file is a different one.
    if (Check().ok()) ::unlink(path_.c_str());
  }

  absl::Status Check() const {
    struct stat held, found;
    if (::fstat(fd_.get(), &held) != 0) return ErrnoStatus(path_, "stat");
    if (::stat(path_.c_str(), &found) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) return ErrnoStatus(path_, "stat");
      return absl::NotFoundError(
          absl::StrCat(folder_, " was removed, moved or emptied while this run used it (", path_,
                       " is gone), and its contents are lost. Start the run again, and leave its "
                       "folder in place"));
    }
    if (AreSame(held, found)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        path_,
        " is not the file that this run locked: the folder was replaced, or another process took "
        "it over. This run stops, so that two runs do not mix their files"));
  }

 private:
  void Renew(absl::Duration renewal) {
    absl::MutexLock lock(&mu_);
    while (!mu_.AwaitWithTimeout(absl::Condition(&stops_), renewal)) {
      ::futimens(fd_.get(), nullptr);
    }
  }

  const std::string folder_;
  const std::string path_;
  const host::FileDescriptor fd_;
  absl::Mutex mu_;
  bool stops_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the others
};

namespace {

// Watches the lock of a process on another machine. Returns true if it is renewed.
absl::StatusOr<bool> IsRenewed(const std::string& path, const FolderLock::Options& options) {
  const Pulse first = FeelPulse(path);
  for (absl::Duration waited; waited < options.patience; waited += kLook) {
    if (options.interrupted && options.interrupted()) return absl::CancelledError("interrupted");
    if (options.wait) {
      options.wait(kLook);
    } else {
      absl::SleepFor(kLook);
    }
    if (!(FeelPulse(path) == first)) return true;
  }
  return false;
}

// Whether the process in a non-empty record still runs. `has_lock`: the kernel knows of no process
// that holds the file.
absl::StatusOr<bool> GoesOn(const std::string& folder, const LockRecord& record, bool has_lock,
                            const FolderLock::Options& options) {
  const LockRecord own = OwnLockRecord();
  const bool same_kernel = !own.boot_id.empty() && record.boot_id == own.boot_id;
  if (same_kernel && has_lock) return false;
  if (same_kernel && record.pid_namespace == own.pid_namespace) return IsRunning(record);
  if (options.note) {
    options.note(absl::StrCat(folder, ": found the lock of ", Describe(record), "; watching for ",
                              absl::FormatDuration(options.patience),
                              " to see whether its holder is alive"));
  }
  return IsRenewed(absl::StrCat(folder, "/", kLockFile), options);
}

absl::StatusOr<host::FileDescriptor> OpenLockFile(const std::string& path) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd,
                   OpenFile(path, O_RDWR | O_CREAT | O_NONBLOCK | O_NOFOLLOW, 0666, "lock"));
  RETURN_IF_ERROR(CheckIsRegular(fd.get(), path));
  return fd;
}

absl::Status Overwrite(int fd, const std::string& text, const std::string& path) {
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::fsync(fd) != 0) {
    return ErrnoStatus(path, "write");
  }
  return absl::OkStatus();
}

}  // namespace

FolderLock::FolderLock(std::unique_ptr<Holder> holder) : holder_(std::move(holder)) {}
FolderLock::FolderLock(FolderLock&&) noexcept = default;
FolderLock::~FolderLock() = default;

absl::Status FolderLock::Check() const { return holder_->Check(); }

bool FolderLock::IsHeld(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kLockFile);
  const absl::StatusOr<host::FileDescriptor> fd = OpenRegularFile(path);
  struct stat info;
  if (!fd.ok() || ::fstat(fd->get(), &info) != 0) return false;
  struct flock whole = {};
  whole.l_type = F_RDLCK;  // conflicts with the holder's F_WRLCK
  whole.l_whence = SEEK_SET;
  const bool kernel_knows = ::fcntl(fd->get(), F_OFD_GETLK, &whole) == 0;
  if (kernel_knows && whole.l_type != F_UNLCK) return true;

  const absl::StatusOr<std::string> left = ReadRecord(fd->get(), path);
  if (!left.ok()) return false;
  const absl::StatusOr<LockRecord> record = ParseLockRecord(*left, path);
  if (!record.ok()) return false;
  const LockRecord own = OwnLockRecord();
  if (!own.boot_id.empty() && record->boot_id == own.boot_id) {
    if (kernel_knows) return false;
    if (record->pid_namespace == own.pid_namespace) return IsRunning(*record);
  }
  return absl::Now() - absl::TimeFromTimespec(info.st_mtim) < Options().patience;
}

absl::StatusOr<FolderLock> FolderLock::Acquire(const std::string& folder, const Options& options) {
  const std::string path = absl::StrCat(folder, "/", kLockFile);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ASSIGN_OR_RETURN(host::FileDescriptor fd, OpenLockFile(path));
    Locked locked = Locked::kUnsupported;
    if (options.use_kernel_lock) {
      ASSIGN_OR_RETURN(locked, TryLock(fd.get(), path));
    }
    ASSIGN_OR_RETURN(const std::string left, ReadRecord(fd.get(), path));
    if (locked == Locked::kByAnother) return HeldBy(folder, left);
    struct stat held, found;
    if (::fstat(fd.get(), &held) != 0) return ErrnoStatus(path, "stat");
    // Its holder released it, and so removed it, between our opening and locking it.
    if (::stat(path.c_str(), &found) != 0 || !AreSame(held, found)) continue;

    if (const absl::StatusOr<LockRecord> record = ParseLockRecord(left, path); record.ok()) {
      ASSIGN_OR_RETURN(const bool goes_on,
                       GoesOn(folder, *record, locked == Locked::kYes, options));
      if (goes_on) return HeldBy(folder, left);
      if (options.note) {
        options.note(absl::StrCat(folder, ": taking over the lock of ", Describe(*record),
                                  ", which has ended"));
      }
    }
    const std::string own = ToText(OwnLockRecord());
    if (locked == Locked::kYes) {
      RETURN_IF_ERROR(Overwrite(fd.get(), own, path));
    } else {
      // A new file, so that a process that took the old one in the same instant finds out.
      RETURN_IF_ERROR(WriteFileAtomically(path, own));
      ASSIGN_OR_RETURN(fd, OpenLockFile(path));
      ASSIGN_OR_RETURN(const std::string present, ReadRecord(fd.get(), path));
      if (present != own) return HeldBy(folder, present);
      if (options.note) {
        options.note(absl::StrCat(folder, ": its file system does not support locks; only ",
                                  kLockFile, " keeps other runs out"));
      }
    }
    return FolderLock(std::make_unique<Holder>(folder, std::move(fd), options.renewal));
  }
  return absl::UnavailableError(
      absl::StrCat(path, ": the lock file keeps disappearing; does another program remove it?"));
}

}  // namespace tandem::io
