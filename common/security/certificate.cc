#include "common/security/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <ctime>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/io/read_file.h"
#include "common/status/status_macros.h"

namespace tandem::security {
namespace {

constexpr int64_t kMaxCertificateBytes = 1 << 20;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

absl::StatusOr<Owned<BIO>> OpenPem(const std::string& path, std::string& text) {
  ASSIGN_OR_RETURN(text, io::ReadFile(path, kMaxCertificateBytes));
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

absl::StatusOr<Owned<X509>> LoadCertificate(const std::string& path) {
  std::string text;
  ASSIGN_OR_RETURN(const Owned<BIO> bio, OpenPem(path, text));
  Owned<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a certificate in PEM"));
  }
  return certificate;
}

absl::StatusOr<absl::Time> ToTime(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) {
    return absl::InvalidArgumentError("cannot read a certificate's validity period");
  }
  return absl::FromTM(parts, absl::UTCTimeZone());
}

Roles RolesOfCertificate(X509* certificate) {
  std::vector<std::string> uris;
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      ASN1_STRING_length(uri));
  }
  return RolesOfUris(uris);
}

// An encrypted key is an error, not a question at the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace

absl::StatusOr<CertificateInfo> ReadCertificate(const std::string& path) {
  ASSIGN_OR_RETURN(const Owned<X509> certificate, LoadCertificate(path));
  CertificateInfo info;
  info.roles = RolesOfCertificate(certificate.get());
  ASSIGN_OR_RETURN(info.not_after, ToTime(X509_get0_notAfter(certificate.get())));
  return info;
}

absl::Status CheckCertificateFiles(const std::string& cert, const std::string& key,
                                   const std::string& ca, Roles roles) {
  RETURN_IF_ERROR(LoadCertificate(ca).status());
  ASSIGN_OR_RETURN(const Owned<X509> certificate, LoadCertificate(cert));
  std::string text;
  ASSIGN_OR_RETURN(const Owned<BIO> bio, OpenPem(key, text));
  const Owned<EVP_PKEY> own_key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassword, nullptr));
  const bool fits =
      own_key != nullptr && X509_check_private_key(certificate.get(), own_key.get()) == 1;
  ERR_clear_error();
  if (own_key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": expected a private key in PEM, without a password"));
  }
  if (!fits) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": the key does not belong to the certificate ", cert));
  }
  ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(cert));
  if (info.not_after <= absl::Now()) {
    return absl::InvalidArgumentError(
        absl::StrCat(cert, ": the certificate has expired at ", absl::FormatTime(info.not_after)));
  }
  if (!info.roles.Meets(roles)) {
    return absl::InvalidArgumentError(absl::StrCat(
        cert, ": expected a name spiffe://DOMAIN/tandem/ROLE, with the role ", roles.ToString(),
        ", among the subject alternative names; roles found: ", info.roles.ToString()));
  }
  return absl::OkStatus();
}

}  // namespace tandem::security
