// Encryption of the data plane: what a process requires of the links that carry tensors between
// ranks.
//
//   ASSIGN_OR_RETURN(const auto plane, security::ResolveDataPlane("auto", has_tls, false));
//   security::SetDataPlaneOfProcess(plane);   // before the process joins groups
//
// Resolved once, from the security flags; every group uses it unless it is given another. The two
// ends of a link compare their settings before they connect (comm::AgreeOnLinks).
#ifndef TANDEM_COMMON_SECURITY_DATA_PLANE_H_
#define TANDEM_COMMON_SECURITY_DATA_PLANE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::security {

enum class DataPlaneEncryption {
  kNever,         // plaintext
  kBetweenHosts,  // TLS on links between hosts; within a host, shared memory and local sockets
  kAlways,        // TLS on every link that is a socket; shared memory stays
};

// "never", "between hosts" or "always".
absl::string_view DataPlaneEncryptionName(DataPlaneEncryption encryption);

struct DataPlaneSecurity {
  DataPlaneEncryption encryption = DataPlaneEncryption::kNever;
  // NCCL has no encryption: it is refused between hosts whose links must be encrypted, unless every
  // rank allows it.
  bool allow_plaintext_nccl = false;
  // The setting's origin, for errors: "--data-plane-encryption auto, TLS off".
  std::string source = "no security flags";
};

// `word`: auto (between hosts if the process has TLS, else never), always or never.
// INVALID_ARGUMENT for any other.
absl::StatusOr<DataPlaneSecurity> ResolveDataPlane(absl::string_view word, bool has_tls,
                                                   bool allow_plaintext_nccl);

// kNever until set. Thread-safe.
DataPlaneSecurity DataPlaneOfProcess();
void SetDataPlaneOfProcess(DataPlaneSecurity plane);

}  // namespace tandem::security

#endif  // TANDEM_COMMON_SECURITY_DATA_PLANE_H_
