// A process's certificate, key and authority, looked at before they are used: gRPC only says that a
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

// Of a PEM file: the first certificate in it. INVALID_ARGUMENT for a file that has none.
absl::StatusOr<CertificateInfo> ReadCertificate(const std::string& path);

// Whether the three PEM files do for a process of one of the `roles`: the certificate is valid now
// and has one, the key is the certificate's, the authority is one. Errors name the file.
absl::Status CheckCertificateFiles(const std::string& cert, const std::string& key,
                                   const std::string& ca, Roles roles);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_CERTIFICATE_H_
