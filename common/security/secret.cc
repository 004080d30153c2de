#include "common/security/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tandem::security {
namespace {

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "OpenSSL: %s failed\n", what);
  std::abort();
}

}  // namespace

std::string DrawSecret(size_t bytes) {
  std::string out(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(out.data()), static_cast<int>(bytes)) != 1) {
    Fail("RAND_bytes");
  }
  return out;
}

std::string Hmac(absl::string_view key, std::initializer_list<absl::string_view> parts) {
  std::string text;
  for (const absl::string_view part : parts) {
    const uint64_t size = part.size();
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(size >> shift);
    text.append(part.data(), part.size());
  }
  std::string out(kSecretBytes, '\0');
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), Bytes(text), text.size(),
           reinterpret_cast<unsigned char*>(out.data()), &size) == nullptr ||
      size != kSecretBytes) {
    Fail("HMAC");
  }
  return out;
}

std::string Digest(absl::string_view bytes) {
  std::string out(kSecretBytes, '\0');
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size,
                 EVP_sha256(), nullptr) != 1 ||
      size != kSecretBytes) {
    Fail("SHA-256");
  }
  return out;
}

bool AreEqual(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tandem::security
