#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>
#include <malloc.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/net/host_port.h"
#include "common/rpc/caller_check.h"
#include "common/rpc/connection_gate.h"
#include "common/rpc/grpc_log.h"
#include "common/rpc/no_compression.h"
#include "common/rpc/peer_endpoint.h"
#include "common/rpc/reset_limit.h"
#include "common/rpc/trace_interceptor.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/telemetry/trace.h"

namespace tandem::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

// Closes a client that has not authenticated by then, and later one that makes no calls.
constexpr absl::Duration kHandshakeTime = absl::Seconds(20);
constexpr absl::Duration kLongestIdle = absl::Minutes(10);
constexpr absl::Duration kLongestConnection = absl::Hours(1);
// A connection may reset --max-calls-per-client calls in that time.
constexpr absl::Duration kResetInterval = absl::Seconds(10);
// Messages of the largest size that may be in flight on one connection and on all, and that gRPC
// has memory for. Once that memory is spent, gRPC closes arbitrary connections, idle ones first; so
// the gate closes the heavy senders before that.
constexpr int64_t kMessagesOfOne = 4;
constexpr int64_t kMessagesOfAll = 16;
constexpr int64_t kMessagesInMemory = 64;
// By then gRPC has released the calls of an ended connection.
constexpr absl::Duration kTrimDelay = absl::Seconds(2);

absl::StatusOr<net::HostPort> ParseListen(const std::string& listen) {
  absl::StatusOr<net::HostPort> parsed = net::ParseListenAddress(listen);
  RETURN_IF_ERROR(parsed.status()) << "cannot listen; for instance 0.0.0.0:5000 or 127.0.0.1:0";
  return parsed;
}

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Health and reflection are process-wide switches; set them before the first builder exists.
void EnablePlugins() {
  RouteGrpcLog();
  static const bool done = [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    return true;
  }();
  (void)done;
}

// Listens on `listen`; the error names the role.
absl::StatusOr<std::shared_ptr<ConnectionGate>> OpenGate(const std::string& role,
                                                         const net::HostPort& listen,
                                                         int64_t max_message_bytes) {
  GateLimits limits;
  limits.max_unheard_bytes = kMessagesOfOne * max_message_bytes;
  limits.max_unheard_bytes_of_all = kMessagesOfAll * max_message_bytes;
  absl::StatusOr<std::unique_ptr<ConnectionGate>> gate = ConnectionGate::Listen(listen, limits);
  if (gate.ok()) return std::shared_ptr<ConnectionGate>(*std::move(gate));
  const bool in_use = absl::StrContains(gate.status().message(), std::strerror(EADDRINUSE));
  return absl::UnavailableError(absl::StrFormat(
      "the %s cannot listen on %s: %s%s", role, listen.ToString(), gate.status().message(),
      in_use ? "; stop the other process or choose port 0" : ""));
}

absl::Status DidNotStart(const std::string& role) {
  return absl::UnavailableError(absl::StrFormat(
      "the %s's gRPC server did not start; TANDEM_LOG=debug shows gRPC's messages", role));
}

// Bounds what idle or hostile clients can cost.
void BoundConnections(grpc::ServerBuilder& builder, const TransportSecurity& security,
                      const grpc::ResourceQuota& memory) {
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             security.options().max_calls_per_client);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, Milliseconds(kHandshakeTime));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(kLongestIdle));
  builder.SetResourceQuota(memory);
  RefuseCompression(
      [&builder](const char* name, int value) { builder.AddChannelArgument(name, value); });
  // Running calls finish; later calls reconnect with the certificates of that time.
  if (security.has_tls()) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(kLongestConnection));
  }
}

// HOST:PORT with the actual port.
std::string WithPort(net::HostPort listen, int port) {
  listen.port = port;
  return listen.ToString();
}

}  // namespace

// Counts a call, and times and logs it when it sends its status. One object per call, on gRPC's
// threads.
class Server::CallObserver final : public grpc::experimental::Interceptor {
 public:
  CallObserver(grpc::experimental::ServerRpcInfo& info, std::shared_ptr<Calls> calls,
               std::shared_ptr<ConnectionGate> gate)
      : info_(info),
        method_(info.method()),
        calls_(std::move(calls)),
        gate_(std::move(gate)),
        start_(absl::Now()) {
    calls_->metrics->OnStarted(method_);
  }
  ~CallObserver() override {
    if (!client_.empty()) calls_->limit->End(client_);
    if (peer_.has_value()) gate_->OnCallEnd(*peer_);
    TrimMemory();
  }

  void Intercept(InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_INITIAL_METADATA)) {
      CountClient(*methods->GetRecvInitialMetadata());
      CountConnection();
      if (telemetry::TraceEnabled()) caller_ = TraceContextIn(methods->GetRecvInitialMetadata());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_MESSAGE)) {
      if (peer_.has_value()) gate_->OnMessage(*peer_);
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::POST_RECV_CLOSE)) {
      // Do not query contexts of gRPC's blocking API here; our services use the callback API.
      auto* context = dynamic_cast<grpc::CallbackServerContext*>(info_.server_context());
      if (context != nullptr && context->IsCancelled()) CountReset(context->peer());
    }
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // Trailing, because initial metadata would keep a client's channel from retrying a failed
      // call.
      methods->GetSendTrailingMetadata()->emplace(kServerTime,
                                                  absl::StrCat(absl::ToUnixMillis(absl::Now())));
      const grpc::Status status = methods->GetSendStatus();
      const auto code = static_cast<absl::StatusCode>(status.error_code());
      const double seconds = absl::ToDoubleSeconds(absl::Now() - start_);
      // For an unknown method the response precedes the reset.
      if (code == absl::StatusCode::kUnimplemented) CountReset(info_.server_context()->peer());
      calls_->num_finished.fetch_add(1);
      calls_->metrics->OnAnswered(method_, code, seconds);
      if (caller_.valid()) {
        telemetry::TraceContext own = caller_;
        own.span = telemetry::NewSpanId();
        telemetry::RecordSpan(method_, start_, own, caller_.span,
                              {{"code", absl::StatusCodeToString(code)}});
      }
      telemetry::LogDebug("rpc answered", {{"method", method_},
                                           {"code", absl::StatusCodeToString(code)},
                                           {"seconds", seconds},
                                           {"message", status.error_message()}});
    }
    methods->Proceed();
  }

 private:
  void CountClient(const Metadata& metadata) {
    if (calls_->limit == nullptr || !client_.empty()) return;
    client_ = CallerOf(metadata, *info_.server_context()->auth_context());
    if (!client_.empty()) calls_->limit->Begin(client_);
  }

  void CountConnection() {
    if (peer_.has_value()) return;
    peer_ = PeerEndpoint::Parse(info_.server_context()->peer());
    if (peer_.has_value()) gate_->OnCallBegin(*peer_);
  }

  // Returns the memory of an ended connection's calls to the system once they are over.
  void TrimMemory() {
    int64_t due = calls_->trim_at;
    if (due == 0 || absl::ToUnixMillis(absl::Now()) < due) return;
    if (calls_->trim_at.compare_exchange_strong(due, 0)) malloc_trim(0);
  }

  void CountReset(const std::string& peer) {
    if (!calls_->resets->Exceeds(peer, absl::Now())) return;
    if (!peer_.has_value() || !gate_->End(*peer_)) return;  // it has left
    calls_->trim_at = absl::ToUnixMillis(absl::Now() + kTrimDelay);
    telemetry::LogWarning("connection closed: its client resets calls as fast as it makes them",
                          {{"peer", peer}, {"method", method_}});
  }

  grpc::experimental::ServerRpcInfo& info_;
  const std::string method_;
  const std::shared_ptr<Calls> calls_;
  const std::shared_ptr<ConnectionGate> gate_;
  std::string client_;                // counted; empty where nobody is known
  std::optional<PeerEndpoint> peer_;  // of the connection, once it is known
  const absl::Time start_;
  telemetry::TraceContext caller_;  // not valid where the caller traces nothing
};

class Server::CallObserverFactory final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallObserverFactory(std::shared_ptr<Calls> calls, std::shared_ptr<ConnectionGate> gate)
      : calls_(std::move(calls)), gate_(std::move(gate)) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new CallObserver(*info, calls_, gate_);
  }

 private:
  const std::shared_ptr<Calls> calls_;
  const std::shared_ptr<ConnectionGate> gate_;
};

absl::StatusOr<std::unique_ptr<Server>> Server::Start(ServerOptions options,
                                                      const std::vector<grpc::Service*>& services) {
  ASSIGN_OR_RETURN(const net::HostPort listen, ParseListen(options.listen));
  EnablePlugins();
  std::unique_ptr<Server> out(new Server);
  out->security_ =
      options.security == nullptr ? TransportSecurity::OfProcess() : std::move(options.security);
  const TransportSecurity& security = *out->security_;
  const bool health_only = options.health_only && services.empty();
  if (!health_only) {
    RETURN_IF_ERROR(security.CheckListen(options.listen));
  }
  if (!health_only && !security.has_tls() && !IsLoopback(options.listen)) {
    telemetry::LogWarning("listening in plaintext on an address that other hosts reach",
                          {{"address", options.listen}});
  }
  const int max_calls = security.options().max_calls_per_client;
  out->role_ = options.role.empty() ? "server" : options.role;
  out->on_drain_ = std::move(options.on_drain);

  grpc::ServerBuilder builder;
  out->calls_->limit = std::make_shared<CallerLimit>(max_calls);
  // A client may cancel all the calls that it may have, at once.
  out->calls_->resets = std::make_shared<ResetLimit>(max_calls, kResetInterval);
  ASSIGN_OR_RETURN(out->gate_, OpenGate(out->role_, listen, options.max_message_bytes));
  out->port_ = out->gate_->port();
  net::HostPort health_listen;
  const std::string health_name = absl::StrCat(out->role_, "'s health port");
  if (!options.health_listen.empty()) {
    ASSIGN_OR_RETURN(health_listen, ParseListen(options.health_listen));
    ASSIGN_OR_RETURN(out->health_gate_,
                     OpenGate(health_name, health_listen, options.max_message_bytes));
  }
  auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      health_only ? grpc::InsecureServerCredentials()
                  : security.ForServer(out->calls_->metrics, out->calls_->limit, options.listen));
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  builder.SetMaxSendMessageSize(static_cast<int>(options.max_message_bytes));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(kPingInterval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(kPingTimeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(kMinPingInterval));
  grpc::ResourceQuota memory(out->role_);
  memory.Resize(static_cast<size_t>(kMessagesInMemory * options.max_message_bytes));
  BoundConnections(builder, security, memory);
  for (grpc::Service* service : services) builder.RegisterService(service);
  out->Observe(builder, out->gate_);

  out->server_ = builder.BuildAndStart();
  if (out->server_ == nullptr) return DidNotStart(out->role_);
  out->gate_->Start(std::move(acceptor));
  out->address_ = WithPort(listen, out->port_);
  if (out->health_gate_ != nullptr) {
    grpc::ServerBuilder health;  // of plugins and health only
    auto health_acceptor = health.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    BoundConnections(health, security, memory);
    out->Observe(health, out->health_gate_);
    out->health_server_ = health.BuildAndStart();
    if (out->health_server_ == nullptr) return DidNotStart(health_name);
    out->health_gate_->Start(std::move(health_acceptor));
    out->health_address_ = WithPort(health_listen, out->health_gate_->port());
  }
  for (const std::string& name : options.health_names) out->SetServing(name, false);
  return out;
}

void Server::Observe(grpc::ServerBuilder& builder, const std::shared_ptr<ConnectionGate>& gate) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<CallObserverFactory>(calls_, gate));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
}

Server::~Server() { Drain(absl::ZeroDuration()); }

void Server::SetServing(const std::string& name, bool serving) {
  absl::MutexLock lock(&health_mu_);
  for (grpc::Server* server : {server_.get(), health_server_.get()}) {
    if (server == nullptr) continue;
    server->GetHealthCheckService()->SetServingStatus(name, serving && !draining_);
  }
}

void Server::Drain(absl::Duration grace) {
  absl::MutexLock drain_lock(&drain_mu_);
  if (drained_ || server_ == nullptr) return;
  {
    absl::MutexLock lock(&health_mu_);
    draining_ = true;
    server_->GetHealthCheckService()->SetServingStatus(false);
    if (health_server_ != nullptr) {
      health_server_->GetHealthCheckService()->SetServingStatus(false);
    }
  }
  if (on_drain_) on_drain_();
  if (gate_ != nullptr) gate_->Stop();
  const absl::Time deadline = absl::Now() + grace;
  server_->Shutdown(absl::ToChronoTime(deadline));
  server_->Wait();
  if (health_server_ != nullptr) {
    health_gate_->Stop();
    health_server_->Shutdown(absl::ToChronoTime(absl::Now()));
    health_server_->Wait();
  }
  drained_ = true;
}

}  // namespace tandem::rpc
