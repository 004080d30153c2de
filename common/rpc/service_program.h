// The main() of a service's program: the flags that every service has, and the steps to start one.
//
//   int main(int argc, char** argv) {
//     CLI::App app("One replica of ...", "tandem-rollout");
//     rpc::ServiceFlags flags;
//     rpc::AddServiceFlags(app, flags);
//     return rpc::RunServiceProgram(app, flags, role, argc, argv,
//                                   [&](rpc::TerminationSignal& t) { return Run(flags, t); });
//   }
#ifndef TANDEM_COMMON_RPC_SERVICE_PROGRAM_H_
#define TANDEM_COMMON_RPC_SERVICE_PROGRAM_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "common/rpc/termination_signal.h"
#include "common/rpc/transport_security.h"
#include "common/security/role.h"

namespace tandem::rpc {

constexpr int kExitFailure = 1;
constexpr int kExitMisuse = 2;

struct ServiceFlags {
  std::vector<std::string> configs;    // files of a RunConfig, later ones override
  std::vector<std::string> overrides;  // KEY=VALUE
  std::string listen = "127.0.0.1:0";
  std::string health_listen;  // HOST:PORT that serves grpc.health.v1 only; none where empty
  std::string ready_file;     // file to write the address to once the process serves
  std::string metrics;        // HOST:PORT to serve metrics on; none where empty
  std::string trace;          // file to write the process's spans to at its end; none where empty
  bool die_with_parent = false;
  SecurityOptions security;
};

// Call before other flags are added, so that their help shows their defaults.
void AddServiceFlags(CLI::App& app, ServiceFlags& flags);

// Parses the arguments, ties the process to its parent if asked to (by the flag or by
// TANDEM_PARENT_PID), applies the security flags, and calls `run`, which returns the exit status.
// Misuse exits with kExitMisuse. Call before other threads exist, so that they leave the signals to
// the TerminationSignal.
int RunServiceProgram(CLI::App& app, const ServiceFlags& flags, security::Role role, int argc,
                      char** argv, const std::function<int(TerminationSignal&)>& run);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SERVICE_PROGRAM_H_
