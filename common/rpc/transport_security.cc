#include "common/rpc/transport_security.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_context.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "common/net/host_port.h"
#include "common/rpc/caller_check.h"
#include "common/rpc/server_check.h"
#include "common/security/certificate.h"
#include "common/status/status_macros.h"

namespace tandem::rpc {
namespace {

namespace tls = grpc::experimental;

struct OfProcess {
  absl::Mutex mu;
  std::shared_ptr<const TransportSecurity> security ABSL_GUARDED_BY(mu);
};

OfProcess& TheProcess() {
  static auto* process = new OfProcess;
  return *process;
}

// While it lives, new threads block SIGTERM and SIGINT, which are for TerminationSignal: gRPC
// starts its threads with its first object, and they stay.
class NoSignalsForNewThreads {
 public:
  NoSignalsForNewThreads() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, &former_);
  }
  ~NoSignalsForNewThreads() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }
  NoSignalsForNewThreads(const NoSignalsForNewThreads&) = delete;
  NoSignalsForNewThreads& operator=(const NoSignalsForNewThreads&) = delete;

 private:
  sigset_t former_;
};

// gRPC has verified the chain by now. ServerCheck judges the server, because it knows the method.
class AnyHost final : public tls::ExternalCertificateVerifier {
 public:
  bool Verify(tls::TlsCustomVerificationCheckRequest*, std::function<void(grpc::Status)>,
              grpc::Status* status) override {
    *status = grpc::Status::OK;
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}
};

}  // namespace

// gRPC's reader of the three files: a thread that checks them periodically.
struct TransportSecurity::Certificates {
  std::shared_ptr<tls::FileWatcherCertificateProvider> provider;
};

absl::StatusOr<std::shared_ptr<const TransportSecurity>> TransportSecurity::Create(
    SecurityOptions options, security::Role own_role) {
  const NoSignalsForNewThreads no_signals;
  const std::string role(security::RoleName(own_role));
  for (std::string* path :
       {&options.tls_cert, &options.tls_key, &options.tls_ca, &options.token_file}) {
    *path = absl::StrReplaceAll(*path, {{"{role}", role}});
  }
  const int num_given =
      !options.tls_cert.empty() + !options.tls_key.empty() + !options.tls_ca.empty();
  if (num_given != 0 && num_given != 3) {
    return absl::InvalidArgumentError(
        "--tls-cert, --tls-key, --tls-ca (TANDEM_TLS_CERT, _KEY, _CA): expected all three or none");
  }
  if (!options.token.empty() && !options.token_file.empty()) {
    return absl::InvalidArgumentError(
        "TANDEM_TOKEN and --token-file: expected one of them, found both");
  }
  if (options.max_calls_per_client < 1) {
    return absl::InvalidArgumentError("--max-calls-per-client: expected at least 1");
  }
  std::shared_ptr<TransportSecurity> out(new TransportSecurity(options));
  if (num_given == 3) {
    // Observers use the driver's program.
    security::Roles accepted = {own_role};
    if (own_role == security::Role::kDriver) accepted.Add(security::Role::kObserver);
    RETURN_IF_ERROR(security::CheckCertificateFiles(options.tls_cert, options.tls_key,
                                                    options.tls_ca, accepted))
        << "TLS";
    const auto seconds = std::max<int64_t>(1, absl::ToInt64Seconds(options.reload_interval));
    out->certificates_ = std::make_shared<Certificates>();
    out->certificates_->provider = std::make_shared<tls::FileWatcherCertificateProvider>(
        options.tls_key, options.tls_cert, options.tls_ca, static_cast<unsigned int>(seconds));
  }
  if (!options.tokens.empty()) {
    ASSIGN_OR_RETURN(out->tokens_, security::TokenTable::Open(options.tokens));
  }
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(out->token_file_, security::TokenFile::Open(options.token_file));
  }
  if (!options.token.empty()) {
    RETURN_IF_ERROR(security::CheckToken(options.token)) << "TANDEM_TOKEN";
  }
  if (out->has_tls()) {
    tls::TlsChannelCredentialsOptions channel;
    channel.set_certificate_provider(out->certificates_->provider);
    channel.watch_root_certs();
    channel.watch_identity_key_cert_pairs();
    channel.set_certificate_verifier(tls::ExternalCertificateVerifier::Create<AnyHost>());
    channel.set_check_call_host(false);
    // Channels outlive this object.
    auto show = [file = out->token_file_, token = options.token] {
      return file != nullptr ? file->Get() : token;
    };
    out->channel_credentials_ = grpc::CompositeChannelCredentials(
        tls::TlsCredentials(channel),
        grpc::MetadataCredentialsFromPlugin(std::make_unique<ServerCheck>(std::move(show))));
  } else {
    out->channel_credentials_ = grpc::InsecureChannelCredentials();
  }
  return out;
}

std::shared_ptr<const TransportSecurity> TransportSecurity::OfProcess() {
  rpc::OfProcess& process = TheProcess();
  absl::MutexLock lock(&process.mu);
  if (process.security == nullptr) {
    auto nothing = std::shared_ptr<TransportSecurity>(new TransportSecurity({}));
    nothing->channel_credentials_ = grpc::InsecureChannelCredentials();
    process.security = std::move(nothing);
  }
  return process.security;
}

void TransportSecurity::SetOfProcess(std::shared_ptr<const TransportSecurity> security) {
  rpc::OfProcess& process = TheProcess();
  absl::MutexLock lock(&process.mu);
  process.security = std::move(security);
}

std::string TransportSecurity::Token() const {
  return token_file_ != nullptr ? token_file_->Get() : options_.token;
}

absl::Status TransportSecurity::CheckListen(absl::string_view listen) const {
  if (has_tls() || IsLoopback(listen)) return absl::OkStatus();
  if (tokens_ != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot accept tokens on ", listen,
        " in plaintext: give --tls-cert, --tls-key and --tls-ca, or listen on 127.0.0.1"));
  }
  if (options_.insecure_plaintext) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("refusing to listen on ", listen,
                   " in plaintext, because other hosts reach it: give --tls-cert, --tls-key and "
                   "--tls-ca (TANDEM_TLS_CERT, _KEY, _CA), listen on 127.0.0.1, or, on a private "
                   "network, allow it with --insecure-plaintext (TANDEM_INSECURE_PLAINTEXT=1)"));
}

absl::Status TransportSecurity::CheckTarget(absl::string_view address) const {
  if (has_tls() || IsLoopback(address)) return absl::OkStatus();
  if (options_.token.empty() && token_file_ == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("refusing to send a token to ", address,
                   " in plaintext: give --tls-cert, --tls-key and --tls-ca, or no token"));
}

std::shared_ptr<grpc::ServerCredentials> TransportSecurity::ForServer(
    std::shared_ptr<CallMetrics> metrics, std::shared_ptr<CallerLimit> limit,
    absl::string_view listen) const {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (has_tls()) {
    tls::TlsServerCredentialsOptions server(certificates_->provider);
    server.watch_root_certs();
    server.watch_identity_key_cert_pairs();
    // With tokens a client may connect without a certificate; one that it shows must still be
    // valid.
    server.set_cert_request_type(tokens_ != nullptr
                                     ? GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_AND_VERIFY
                                     : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    credentials = tls::TlsServerCredentials(server);
  } else if (tokens_ != nullptr && IsLoopback(listen)) {
    // Like plaintext, but checks each call and refuses other hosts.
    credentials = tls::LocalServerCredentials(LOCAL_TCP);
  } else {
    return grpc::InsecureServerCredentials();
  }
  credentials->SetAuthMetadataProcessor(
      std::make_shared<CallerCheck>(tokens_, std::move(metrics), std::move(limit)));
  return credentials;
}

bool TransportSecurity::HasRole(const grpc::ServerContextBase& context, security::Role role) const {
  if (!has_tls() && tokens_ == nullptr) return true;
  return RolesOfCall(context.client_metadata(), *context.auth_context(), tokens_.get())
      .Meets(security::Roles{role});
}

std::shared_ptr<grpc::ChannelCredentials> TransportSecurity::ForChannel() const {
  return channel_credentials_;
}

bool IsLoopback(absl::string_view address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const absl::StatusOr<net::HostPort> parsed = net::ParseListenAddress(address);
  if (!parsed.ok()) return false;
  const std::string& host = parsed->host;
  if (host == "localhost" || host == "::1") return true;
  // 127.0.0.0/8, but no host name with that prefix.
  return absl::StartsWith(host, "127.") && std::all_of(host.begin(), host.end(), [](char c) {
           return c == '.' || (c >= '0' && c <= '9');
         });
}

}  // namespace tandem::rpc
