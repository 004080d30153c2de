// TokenFile: the token that a client shows, from a file that may be replaced while it runs.
#ifndef TANDEM_COMMON_SECURITY_TOKEN_FILE_H_
#define TANDEM_COMMON_SECURITY_TOKEN_FILE_H_

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem::security {

// Tokens that are shorter can be guessed.
inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// OK, or what is wrong with a token, without a word of what it is.
absl::Status CheckToken(absl::string_view token);

// A small file, and whether it has changed since it was read last. It is looked at once a second.
// Any thread.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // Where the file is another than at the last call that has read it: calls `use` with its text.
  // The errors of reading it and of `use`; the caller stays with what it had.
  absl::Status Refresh(const std::function<absl::Status(const std::string& text)>& use);

 private:
  const std::string path_;
  absl::Mutex mu_;
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  struct stat seen_ ABSL_GUARDED_BY(mu_) = {};
};

class TokenFile {
 public:
  // INVALID_ARGUMENT or what reading said where there is no token in the file.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path);

  // The token of now. A file that cannot be read any more is told to the log; the last token stays.
  std::string Get();

 private:
  explicit TokenFile(const std::string& path) : file_(path) {}

  absl::Status Refresh();

  WatchedFile file_;
  absl::Mutex mu_;
  std::string token_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_TOKEN_FILE_H_
