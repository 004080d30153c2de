// TransportSecurity: how a process proves who it is to the others, and what it asks of them.
//
//   ASSIGN_OR_RETURN(auto security, TransportSecurity::Create(options, security::Role::kTrainer));
//   // Before servers and channels are made.
//   TransportSecurity::SetOfProcess(std::move(security));
//
// With a certificate, a key and an authority every port and every channel of the process is mutual
// TLS, but for loopback and health ports that were asked for as such. The three files are looked at
// every few seconds: what replaces them is used by the connections that are made from then on. Both
// sides judge the other by the role in its certificate (security::Role) and by the table of methods
// (security::MethodRoles), not by its host's name: certificates need no addresses in them.
//
// With tokens a server lets clients in without a certificate, as the role of their token.
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
  // set of paths does for all programs.
  std::string tls_cert;
  std::string tls_key;
  std::string tls_ca;
  // Lines of ROLE TOKEN: who may call without a certificate. See security::TokenTable.
  std::string tokens;
  // The token that this process shows, or the file that it is in; at most one of them.
  std::string token;
  std::string token_file;
  // Allows ports that others than this host reach, without TLS.
  bool insecure_plaintext = false;
  // auto, always or never: see security::ResolveDataPlane().
  std::string data_plane_encryption = "auto";
  // Allows NCCL, which sends plaintext, between hosts whose links are to be encrypted.
  bool allow_plaintext_nccl = false;
  // Between looks at the three files; at least a second.
  absl::Duration reload_interval = absl::Seconds(10);
  // Calls of one client that are under way at a time.
  int max_calls_per_client = 4096;
};

// Thread-safe.
class TransportSecurity {
 public:
  // INVALID_ARGUMENT, NOT_FOUND and the like name the flag and the file: one that is missing, a key
  // that is not the certificate's, a certificate that has expired or does not have `own_role`.
  static absl::StatusOr<std::shared_ptr<const TransportSecurity>> Create(SecurityOptions options,
                                                                         security::Role own_role);

  // What servers and channels use that are given nothing else; before SetOfProcess(), nothing at
  // all: plaintext on loopback.
  static std::shared_ptr<const TransportSecurity> OfProcess();
  static void SetOfProcess(std::shared_ptr<const TransportSecurity> security);

  bool has_tls() const { return certificates_ != nullptr; }
  const SecurityOptions& options() const { return options_; }

  // Whether this process may listen on HOST:PORT: INVALID_ARGUMENT, with the flags that help, for a
  // port that others reach and that would be plaintext.
  absl::Status CheckListen(absl::string_view listen) const;
  // Whether it may speak to HOST:PORT: INVALID_ARGUMENT where its token would go out in plaintext.
  absl::Status CheckTarget(absl::string_view address) const;

  // Of a server: what every call must pass is counted in `metrics` where it does not.
  std::shared_ptr<grpc::ServerCredentials> ForServer(std::shared_ptr<CallMetrics> metrics,
                                                     std::shared_ptr<CallerLimit> limit,
                                                     absl::string_view listen) const;
  // Whether the caller of a server with this security has the role, for methods that do more for
  // one role than for another. True for everybody where callers are not checked.
  bool HasRole(const grpc::ServerContextBase& context, security::Role role) const;

  // Of a channel; TLS where the process has it.
  std::shared_ptr<grpc::ChannelCredentials> ForChannel() const;

  // Shown to servers; empty where there is none.
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

// Whether HOST:PORT is reached from this host alone: 127.0.0.0/8, ::1, localhost or a unix socket.
bool IsLoopback(absl::string_view address);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_TRANSPORT_SECURITY_H_
