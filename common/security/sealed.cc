#include "common/security/sealed.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "common/security/secret.h"

namespace tandem::security {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kTagBytes = 16;

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* cipher) const { EVP_CIPHER_CTX_free(cipher); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

std::string KeyOf(absl::string_view secret) { return Hmac(secret, {"tandem sealed secret"}); }

const unsigned char* In(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* Out(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

// Fails only on a machine without memory or without AES.
void Require(int result, const char* what) {
  if (result == 1) return;
  std::fprintf(stderr, "OpenSSL: %s failed\n", what);
  std::abort();
}

}  // namespace

std::string Seal(absl::string_view secret, absl::string_view plaintext, absl::string_view context) {
  const std::string key = KeyOf(secret);
  std::string sealed = DrawSecret(kNonceBytes);
  std::string body(plaintext.size(), '\0');
  std::string tag(kTagBytes, '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  Require(EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(sealed)),
          "EVP_EncryptInit_ex");
  Require(EVP_EncryptUpdate(cipher.get(), nullptr, &size, In(context),
                            static_cast<int>(context.size())),
          "EVP_EncryptUpdate");
  Require(EVP_EncryptUpdate(cipher.get(), Out(body), &size, In(plaintext),
                            static_cast<int>(plaintext.size())),
          "EVP_EncryptUpdate");
  Require(EVP_EncryptFinal_ex(cipher.get(), Out(tag), &size), "EVP_EncryptFinal_ex");
  Require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes, Out(tag)),
          "EVP_CTRL_GCM_GET_TAG");
  return sealed + body + tag;
}

absl::StatusOr<std::string> Unseal(absl::string_view secret, absl::string_view sealed,
                                   absl::string_view context) {
  const auto refused = [] {
    ERR_clear_error();
    return absl::PermissionDeniedError(
        "cannot open a sealed secret: it was sealed with another secret, or was changed");
  };
  if (sealed.size() < kNonceBytes + kTagBytes) return refused();
  const std::string key = KeyOf(secret);
  const absl::string_view body =
      sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  std::string plaintext(body.size(), '\0');
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int size = 0;
  Require(EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, In(key), In(sealed)),
          "EVP_DecryptInit_ex");
  Require(EVP_DecryptUpdate(cipher.get(), nullptr, &size, In(context),
                            static_cast<int>(context.size())),
          "EVP_DecryptUpdate");
  Require(EVP_DecryptUpdate(cipher.get(), Out(plaintext), &size, In(body),
                            static_cast<int>(body.size())),
          "EVP_DecryptUpdate");
  Require(EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, Out(tag)),
          "EVP_CTRL_GCM_SET_TAG");
  unsigned char none[kTagBytes];
  if (EVP_DecryptFinal_ex(cipher.get(), none, &size) != 1) return refused();
  return plaintext;
}

}  // namespace tandem::security
