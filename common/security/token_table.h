// TokenTable: the bearer tokens that a server accepts, and the role that each grants.
//
// Each line of its file is ROLE TOKEN; empty lines and lines that begin with # are skipped:
//
//   # made by: openssl rand -hex 32
//   driver    5f0c...
//   observer  91ab...
//
// The table reads the file again when it changes, and then refuses removed tokens.
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

// Thread-safe.
class TokenTable {
 public:
  // Errors name the file and the line, never a token. INVALID_ARGUMENT if the file has no token.
  static absl::StatusOr<std::unique_ptr<TokenTable>> Open(const std::string& path);

  // Returns the role of a token, or nothing, in a time that does not depend on whether and where
  // the table has it. Keeps and compares tokens as SHA-256 digests.
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
