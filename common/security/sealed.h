// Encrypts a short secret with another one: AES-256-GCM from OpenSSL.
//
//   const std::string sealed = security::Seal(group_secret, update_secret, update_id);
//   ASSIGN_OR_RETURN(const std::string opened, security::Unseal(group_secret, sealed, update_id));
#ifndef TANDEM_COMMON_SECURITY_SEALED_H_
#define TANDEM_COMMON_SECURITY_SEALED_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::security {

// Encrypts `plaintext` under a key derived from `secret`, which is not empty. `context` is
// authenticated but not hidden: text sealed for one context does not open for another. Each call
// draws a nonce, so that one secret suffices for 2^32 calls.
std::string Seal(absl::string_view secret, absl::string_view plaintext, absl::string_view context);

// PERMISSION_DENIED if `sealed` was made with another secret or context, or changed since.
absl::StatusOr<std::string> Unseal(absl::string_view secret, absl::string_view sealed,
                                   absl::string_view context);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_SEALED_H_
