// Draws secrets, proves knowledge of one, and compares them in constant time. Uses OpenSSL.
//
//   const std::string secret = security::DrawSecret();
//   const std::string proof = security::Hmac(secret, {"store", challenge});
//   if (!security::AreEqual(proof, found)) return Refuse();
#ifndef TANDEM_COMMON_SECURITY_SECRET_H_
#define TANDEM_COMMON_SECURITY_SECRET_H_

#include <cstddef>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"

namespace tandem::security {

// Bytes of a secret, of a proof and of a digest.
inline constexpr size_t kSecretBytes = 32;

// Returns random bytes from the system's generator; aborts if it has none.
std::string DrawSecret(size_t bytes = kSecretBytes);

// HMAC-SHA-256 with `key` over the parts, each prefixed with its length, so that no two lists of
// parts produce the same input.
std::string Hmac(absl::string_view key, std::initializer_list<absl::string_view> parts);

// SHA-256.
std::string Digest(absl::string_view bytes);

// Compares in time that does not depend on where they differ. Lengths are not secret.
bool AreEqual(absl::string_view a, absl::string_view b);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_SECRET_H_
