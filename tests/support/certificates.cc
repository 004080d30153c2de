#include "tests/support/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kBackdated = absl::Hours(1);

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

template <typename T>
T* Check(T* made) {
  if (made == nullptr) throw std::runtime_error("OpenSSL could not make a certificate");
  return made;
}

template <typename Write>
std::string ToPem(Write write) {
  const Owned<BIO> bio(Check(BIO_new(BIO_s_mem())));
  if (write(bio.get()) != 1) throw std::runtime_error("OpenSSL could not write PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

std::string CertificatePem(X509* certificate) {
  return ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

void WriteAtOnce(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new", std::ios::binary) << text;
  if (std::rename((path + ".new").c_str(), path.c_str()) != 0) {
    throw std::runtime_error("cannot write " + path);
  }
}

void AddExtension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = Check(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Owned<X509> NewCertificate(EVP_PKEY* key, const std::string& name, absl::Duration valid_for) {
  static std::atomic<long> serial{1};
  Owned<X509> certificate(Check(X509_new()));
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  const absl::Time now = absl::Now();
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), absl::ToTimeT(now - kBackdated));
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), absl::ToTimeT(now + valid_for));
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

struct TestAuthority::Parts {
  Owned<EVP_PKEY> key;
  Owned<X509> certificate;
  std::string pem;
};

TestAuthority::TestAuthority(const TempFolder& folder, std::string name)
    : folder_(folder), name_(std::move(name)), parts_(std::make_unique<Parts>()) {
  parts_->key.reset(Check(EVP_EC_gen("P-256")));
  parts_->certificate = NewCertificate(parts_->key.get(), name_, absl::Hours(24));
  X509* own = parts_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(own, parts_->key.get(), EVP_sha256());
  parts_->pem = CertificatePem(own);
  WriteAtOnce(ca_path(), parts_->pem);
}

TestAuthority::~TestAuthority() = default;

std::string TestAuthority::ca_path() const { return folder_ / (name_ + ".crt"); }
const std::string& TestAuthority::ca_pem() const { return parts_->pem; }

rpc::SecurityOptions TestAuthority::Issue(const std::string& name,
                                          const CertificateRequest& request) const {
  const Owned<EVP_PKEY> key(Check(EVP_EC_gen("P-256")));
  const Owned<X509> certificate = NewCertificate(key.get(), name, request.valid_for);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(parts_->certificate.get()));
  if (!request.uris.empty()) {
    AddExtension(certificate.get(), parts_->certificate.get(), NID_subject_alt_name,
                 absl::StrJoin(request.uris, ",", [](std::string* out, const std::string& uri) {
                   absl::StrAppend(out, "URI:", uri);
                 }));
  }
  X509_sign(certificate.get(), parts_->key.get(), EVP_sha256());
  rpc::SecurityOptions options;
  options.tls_cert = folder_ / (name + ".crt");
  options.tls_key = folder_ / (name + ".key");
  options.tls_ca = ca_path();
  options.reload_interval = absl::Seconds(1);
  WriteAtOnce(options.tls_key, ToPem([&](BIO* bio) {
                return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr,
                                                nullptr);
              }));
  WriteAtOnce(options.tls_cert, CertificatePem(certificate.get()));
  return options;
}

rpc::SecurityOptions TestAuthority::Issue(security::Role role) const {
  return Issue(std::string(security::RoleName(role)), {.uris = {RoleUri(role)}});
}

std::shared_ptr<const rpc::TransportSecurity> TestAuthority::Security(security::Role role) const {
  auto security = rpc::TransportSecurity::Create(Issue(role), role);
  if (!security.ok()) throw std::runtime_error(security.status().ToString());
  return *std::move(security);
}

std::string RoleUri(security::Role role) {
  return absl::StrCat("spiffe://test/tandem/", security::RoleName(role));
}

}  // namespace tandem::testing
