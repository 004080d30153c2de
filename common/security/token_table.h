// TokenTable: the bearer tokens that a server takes, and the role that each gives.
//
// A line of its file is ROLE TOKEN; empty lines and lines that begin with # are passed over:
//
//   # made by: openssl rand -hex 32
//   driver    5f0c...
//   observer  91ab...
//
// The file is read again when it changes: a token that is taken out is refused from then on.
#ifndef TANDEM_COMMON_SECURITY_TOKEN_TABLE_H_
#define TANDEM_COMMON_SECURITY_TOKEN_TABLE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/security/role.h"
#include "common/security/token_file.h"

namespace tandem::security {

// Any thread.
class TokenTable {
 public:
  // Errors name the file and the line, never a token. A file without a token is INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Open(const std::string& path);

  // The role of a token, or nothing. Takes the same time whichever line it is, and whether it is
  // one. Tokens are kept and compared as SHA-256 digests.
  std::optional<Role> Find(absl::string_view token);

 private:
  struct Entry {
    Role role;
    std::string digest;
  };

  explicit TokenTable(const std::string& path) : file_(path) {}

  absl::Status Refresh();
  static absl::StatusOr<std::vector<Entry>> Parse(const std::string& text);

  WatchedFile file_;
  absl::Mutex mu_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_TOKEN_TABLE_H_
