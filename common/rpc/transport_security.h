// TransportSecurity: how a process authenticates to others, and what it requires of them.
//
//   ASSIGN_OR_RETURN(auto security, TransportSecurity::Create(options, security::Role::kTrainer));
//   // Before servers and channels are made.
//   TransportSecurity::SetOfProcess(std::move(security));
//
// With a certificate, a key and an authority, every port and every channel of the process uses
// mutual TLS, except loopback and health ports configured as plaintext. The process checks the
// three files every few seconds; new connections use the new ones. Each side judges the other by
// the role in its certificate (security::Role) and the table of methods (security::MethodRoles),
// not by host name: certificates need no addresses.
//
// With tokens, a server admits clients without a certificate, in the role of their token.
#ifndef TANDEM_COMMON_RPC_TRANSPORT_SECURITY_H_
#define TANDEM_COMMON_RPC_TRANSPORT_SECURITY_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/call_metrics.h"
#include "common/rpc/caller_limit.h"
#include "common/security/role.h"
#include "common/security/token_file.h"
#include "common/security/token_table.h"

namespace tandem::rpc {

struct SecurityOptions {
  // PEM files; all three or none. "{role}" in a path stands for the process's own role, so that one
  // set of paths serves all programs.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  // File with lines of ROLE TOKEN: callers that need no certificate. See security::TokenTable.
  std::string tokens;
  // The token that this process sends, or the file that holds it; at most one of them.
  std::string token;
  std::string token_file;
  // Allows plaintext ports that other hosts can reach.
  bool insecure_plaintext = false;
  // auto, always or never: see security::ResolveDataPlane().
  std::string data_plane_encryption = "auto";
  // Allows NCCL, which sends plaintext, between hosts whose links should be encrypted.
  bool allow_plaintext_nccl = false;
  // Time between checks of the three files; at least a second.
  absl::Duration reload_interval = absl::Seconds(10);
  // Calls that one client may have in flight.
  int max_calls_per_client = 4096;
};

// Thread-safe.
class TransportSecurity {
 public:
  // INVALID_ARGUMENT, NOT_FOUND and the like name the flag and the file: a missing file, a key that
  // does not match the certificate, a certificate that has expired or lacks `own_role` (an
  // observer's certificate suffices for a driver).
  static absl::StatusOr<std::shared_ptr<const TransportSecurity>> Create(SecurityOptions options,
                                                                         security::Role own_role);

  // The default security of servers and channels. Before SetOfProcess(): plaintext on loopback.
  static std::shared_ptr<const TransportSecurity> OfProcess();
  static void SetOfProcess(std::shared_ptr<const TransportSecurity> security);

  bool has_tls() const { return certificates_ != nullptr; }
  const SecurityOptions& options() const { return options_; }

  // Checks whether this process may listen on HOST:PORT. INVALID_ARGUMENT, with the flags that
  // help, for a plaintext port that other hosts can reach.
  absl::Status CheckListen(absl::string_view listen) const;
  // Checks whether it may connect to HOST:PORT. INVALID_ARGUMENT if that would send its token in
  // plaintext.
  absl::Status CheckTarget(absl::string_view address) const;

  // Credentials for a server. Counts refused calls in `metrics`.
  std::shared_ptr<grpc::ServerCredentials> ForServer(std::shared_ptr<CallMetrics> metrics,
                                                     std::shared_ptr<CallerLimit> limit,
                                                     absl::string_view listen) const;
  // Whether the caller has the role, for methods that do more for one role than for another. True
  // for everybody if the server does not check callers.
  bool HasRole(const grpc::ServerContextBase& context, security::Role role) const;

  // Credentials for a channel; TLS if the process has it.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel() const;

  // The token to send to servers; empty if there is none.
  std::string Token() const;

 private:
  struct Certificates;
  explicit TransportSecurity(SecurityOptions options) : options_(std::move(options)) {}

  const SecurityOptions options_;
  std::shared_ptr<Certificates> certificates_;  // null without TLS
  std::shared_ptr<security::TokenTable> tokens_;
  std::shared_ptr<security::TokenFile> token_file_;
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials_;
};

// Whether only this host can reach HOST:PORT: 127.0.0.0/8, ::1, localhost or a unix socket.
bool IsLoopback(absl::string_view address);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_TRANSPORT_SECURITY_H_
