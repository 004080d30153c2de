// Command-line flags of TransportSecurity, the same for all programs, each with its environment
// variable.
#ifndef TANDEM_COMMON_RPC_SECURITY_FLAGS_H_
#define TANDEM_COMMON_RPC_SECURITY_FLAGS_H_

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "common/rpc/transport_security.h"
#include "common/security/role.h"

namespace tandem::rpc {

void AddSecurityFlags(CLI::App& app, SecurityOptions& options);

// Applies the flags to the process and, through the environment, to its children, which have roles
// of their own. Call before threads exist that read the environment.
absl::Status ApplySecurityFlags(SecurityOptions options, security::Role own_role);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SECURITY_FLAGS_H_
