// Checks a process's certificate, key and authority before use: gRPC itself only reports that a
// handshake failed.
#ifndef TANDEM_COMMON_SECURITY_CERTIFICATE_H_
#define TANDEM_COMMON_SECURITY_CERTIFICATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/role.h"

namespace tandem::security {

struct CertificateInfo {
  Roles roles;
  absl::Time not_after;
};

// Reads the first certificate in a PEM file. INVALID_ARGUMENT if the file has none.
absl::StatusOr<CertificateInfo> ReadCertificate(const std::string& path);

// Checks that the three PEM files suit a process of one of the `roles`: the certificate is valid
// now and has such a role, the key matches it, and the authority is one. Errors name the file.
absl::Status CheckCertificateFiles(const std::string& cert, const std::string& key,
                                   const std::string& ca, Roles roles);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_CERTIFICATE_H_
