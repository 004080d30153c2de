// TokenFile: the token that a client sends, from a file that may be replaced while it runs.
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

// Shorter tokens can be guessed.
inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;

// OK, or what is wrong with a token; the message never contains the token.
absl::Status CheckToken(absl::string_view token);

// A small file that is read again when it changes. Checks for changes once a second at most.
// Thread-safe.
class WatchedFile {
 public:
  explicit WatchedFile(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }

  // Calls `use` with the file's text if the file has changed since it was last read. Returns the
  // errors of reading it and of `use`; the caller then keeps what it had.
  absl::Status Refresh(const std::function<absl::Status(const std::string& text)>& use);

 private:
  const std::string path_;
  absl::Mutex mu_;
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  struct stat seen_ ABSL_GUARDED_BY(mu_) = {};
};

class TokenFile {
 public:
  // INVALID_ARGUMENT, or the error of reading it, if the file holds no token.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const std::string& path);

  // Returns the current token. If the file cannot be read any more, logs that and returns the last
  // token.
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
