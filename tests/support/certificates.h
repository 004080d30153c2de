// Authorities and certificates made when a test runs: nothing secret lies in the repository.
//
//   const TestAuthority authority(folder, "ca");
//   rpc::SecurityOptions options = authority.Issue("driver", {.uris =
//   {"spiffe://test/tandem/driver"}});
#ifndef TANDEM_TESTS_SUPPORT_CERTIFICATES_H_
#define TANDEM_TESTS_SUPPORT_CERTIFICATES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/rpc/transport_security.h"
#include "common/security/role.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

struct CertificateRequest {
  std::vector<std::string> uris;
  absl::Duration valid_for = absl::Hours(1);  // from an hour ago; of a negative one it is over
};

// A certificate authority; its files lie in `folder`, which outlives it.
class TestAuthority {
 public:
  TestAuthority(const TempFolder& folder, std::string name);
  ~TestAuthority();

  // Writes FOLDER/NAME.crt and .key, each at once, over those of before, and answers the three
  // paths.
  rpc::SecurityOptions Issue(const std::string& name, const CertificateRequest& request) const;
  // For one role, by its usual name.
  rpc::SecurityOptions Issue(security::Role role) const;
  // The security of a process that has that certificate. Ends the test where there is none.
  std::shared_ptr<const rpc::TransportSecurity> Security(security::Role role) const;

  std::string ca_path() const;
  // Certificate in PEM.
  const std::string& ca_pem() const;

 private:
  struct Parts;
  const TempFolder& folder_;
  const std::string name_;
  std::unique_ptr<Parts> parts_;
};

// A name of a certificate that gives the role.
std::string RoleUri(security::Role role);

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CERTIFICATES_H_
