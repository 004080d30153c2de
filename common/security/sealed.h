// A short secret that travels under another one: AES-256-GCM by OpenSSL.
//
//   const std::string sealed = security::Seal(group_secret, update_secret, update_id);
//   ASSIGN_OR_RETURN(const std::string opened, security::Unseal(group_secret, sealed, update_id));
#ifndef TANDEM_COMMON_SECURITY_SEALED_H_
#define TANDEM_COMMON_SECURITY_SEALED_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::security {

// Encrypts `plaintext` under a key derived from `secret`, which is not empty. `context` is not
// hidden: what was sealed for one context does not open for another. The nonce is drawn for each
// call, so that one secret does for 2^32 of them.
std::string Seal(absl::string_view secret, absl::string_view plaintext, absl::string_view context);

// PERMISSION_DENIED where `sealed` was made with another secret or context, or changed since.
absl::StatusOr<std::string> Unseal(absl::string_view secret, absl::string_view sealed,
                                   absl::string_view context);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_SEALED_H_
