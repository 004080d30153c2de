#include "tools/tandem/reward/judge_cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/io/file_util.h"
#include "common/io/jsonl.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"

namespace tandem::reward {
namespace {

// A lock is held while a line is written, or while the file is read at the start of a run.
constexpr absl::Duration kLockWait = absl::Seconds(30);
constexpr absl::Duration kLockPoll = absl::Milliseconds(5);

// Opens the file and locks it until the descriptor closes. The lock keeps writers apart, so an
// incomplete last line is what a crash left behind.
absl::StatusOr<host::FileDescriptor> LockCacheFile(const std::string& path) {
  ASSIGN_OR_RETURN(host::FileDescriptor fd,
                   io::OpenFile(path, O_RDWR | O_CREAT | O_NONBLOCK, 0666, "keep judgements in"));
  RETURN_IF_ERROR(io::CheckIsRegular(fd.get(), path));
  const absl::Time deadline = absl::Now() + kLockWait;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return io::ErrnoStatus(path, "lock");
    if (absl::Now() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          path, ": another process has held its lock for ", absl::FormatDuration(kLockWait)));
    }
    absl::SleepFor(kLockPoll);
  }
  return fd;
}

}  // namespace

std::string JudgeCache::KeyOf(absl::string_view request) {
  return absl::BytesToHexString(security::Digest(request));
}

absl::Status JudgeCache::Load() {
  std::error_code error;
  if (path_.empty()) return absl::OkStatus();
  if (!std::filesystem::exists(path_, error)) {
    const std::string folder = io::ParentFolder(path_);
    if (std::filesystem::is_directory(folder, error)) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(path_, ": cannot keep judgements there: no folder ", folder));
  }
  absl::MutexLock file_lock(&file_mu_);
  ASSIGN_OR_RETURN(const host::FileDescriptor locked, LockCacheFile(path_));
  absl::MutexLock lock(&mu_);
  return io::ForEachJsonLine(
      path_,
      [this](const io::JsonFields& row) -> absl::Status {
        mu_.AssertHeld();
        ASSIGN_OR_RETURN(const std::string key, row.String("key"));
        ASSIGN_OR_RETURN(std::string answer, row.String("answer"));
        Keep(key, std::move(answer));
        return absl::OkStatus();
      },
      io::kRunFile);
}

std::optional<std::string> JudgeCache::Find(const std::string& key) const {
  absl::MutexLock lock(&mu_);
  const auto found = answers_.find(key);
  if (found == answers_.end()) return std::nullopt;
  return found->second;
}

absl::Status JudgeCache::Add(const std::string& key, const std::string& answer) {
  {
    absl::MutexLock lock(&mu_);
    Keep(key, answer);
  }
  if (path_.empty()) return absl::OkStatus();
  absl::MutexLock file_lock(&file_mu_);
  ASSIGN_OR_RETURN(const host::FileDescriptor locked, LockCacheFile(path_));
  // Opened for each line: that drops what another process tore since.
  ASSIGN_OR_RETURN(io::JsonlWriter file, io::JsonlWriter::Open(path_));
  return file.Append({{"key", key}, {"answer", answer}});
}

void JudgeCache::Keep(const std::string& key, std::string answer) {
  const size_t size = 2 * key.size() + answer.size();  // the key stands in both containers
  if (size > max_bytes_) return;
  const auto [place, is_new] = answers_.try_emplace(key, answer);
  if (!is_new) {
    num_bytes_ += answer.size();
    num_bytes_ -= place->second.size();
    place->second = std::move(answer);
  } else {
    order_.push_back(key);
    num_bytes_ += size;
  }
  while (num_bytes_ > max_bytes_) {
    const auto oldest = answers_.find(order_.front());
    num_bytes_ -= 2 * oldest->first.size() + oldest->second.size();
    answers_.erase(oldest);
    order_.pop_front();
  }
}

}  // namespace tandem::reward
