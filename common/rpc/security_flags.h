// The flags of TransportSecurity, one set for all programs, each with its environment variable.
#ifndef TANDEM_COMMON_RPC_SECURITY_FLAGS_H_
#define TANDEM_COMMON_RPC_SECURITY_FLAGS_H_

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "common/rpc/transport_security.h"
#include "common/security/role.h"

namespace tandem::rpc {

void AddSecurityFlags(CLI::App& app, SecurityOptions& options);

// Makes what the flags say that of the process and, by the environment, of its children, whose
// roles are their own. Before threads exist that read the environment.
absl::Status ApplySecurityFlags(SecurityOptions options, security::Role own_role);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SECURITY_FLAGS_H_
