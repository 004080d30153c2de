// The gRPC server of every Tandem process: health, reflection, keepalive that matches our channels,
// a debug log line for each call, and an orderly stop.
//
//   ASSIGN_OR_RETURN(auto server, rpc::Server::Start({.listen = "127.0.0.1:0", .role = "rollout"},
//                                                    {&rollout_service, &weight_service}));
//   server->SetServing("tandem.rollout.v1.RolloutService", true);
//   termination.Wait();
//   server->Drain(absl::Seconds(20));
#ifndef TANDEM_COMMON_RPC_SERVER_H_
#define TANDEM_COMMON_RPC_SERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/call_metrics.h"
#include "common/rpc/caller_limit.h"
#include "common/rpc/channel.h"
#include "common/rpc/connection_gate.h"
#include "common/rpc/reset_limit.h"
#include "common/rpc/transport_security.h"

namespace tandem::rpc {

struct ServerOptions {
  // HOST:PORT; port 0 takes a free one. A port in use is an error, never shared.
  std::string listen = "127.0.0.1:0";
  // HOST:PORT of a second port that serves grpc.health.v1 in plaintext and no other service, for
  // probes, which have no certificates. Empty: none.
  std::string health_listen;
  // `listen` itself is such a port: the process serves nothing else.
  bool health_only = false;
  // Names the process in messages: "trainer", "rollout".
  std::string role;
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // Health names that report NOT_SERVING until SetServing() says otherwise. "" serves from the
  // start.
  std::vector<std::string> health_names;
  // Drain() calls this after health has changed and before it waits for calls. Use it to end
  // streams that would otherwise last as long as their client, and to refuse new work.
  std::function<void()> on_drain;
  // Who may call, and how; null for the process's security.
  std::shared_ptr<const TransportSecurity> security;
};

// Owns the listening socket and gRPC's threads; the caller owns the services, which outlive it.
// Services must use gRPC's callback API: only there does the server detect clients that reset calls
// in bulk. Thread-safe, but do not call Drain() from within an RPC.
class Server {
 public:
  // Returns once the server serves. INVALID_ARGUMENT if `listen` is no address, or if other hosts
  // can reach it and neither TLS nor --insecure-plaintext covers it; UNAVAILABLE, with the reason,
  // if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options,
                                                       const std::vector<grpc::Service*>& services);
  // Cancels calls that still run.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT with the actual port.
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  // Address of the health port; empty if there is none.
  const std::string& health_address() const { return health_address_; }

  // Sets what grpc.health.v1 reports for `name`, on both ports. Once draining, every name stays
  // NOT_SERVING.
  void SetServing(const std::string& name, bool serving);

  // Sets every health name to NOT_SERVING, stops accepting, lets calls finish for up to `grace`,
  // cancels the rest, and returns when none is left; the health port responds until then. A second
  // call waits for the first.
  void Drain(absl::Duration grace);

  // Metrics of every call, health and reflection included.
  std::shared_ptr<CallMetrics> metrics() const { return calls_->metrics; }
  // Calls finished since the start, health and reflection included.
  int64_t num_finished_calls() const { return calls_->num_finished.load(); }

 private:
  Server() = default;
  // Counts, times and logs the calls of the server being built; its connections come through
  // `gate`.
  void Observe(grpc::ServerBuilder& builder, const std::shared_ptr<ConnectionGate>& gate);

  // May outlive the server: calls hold it.
  struct Calls {
    std::atomic<int64_t> num_finished{0};
    std::shared_ptr<CallMetrics> metrics = std::make_shared<CallMetrics>();
    std::shared_ptr<CallerLimit> limit;
    std::shared_ptr<ResetLimit> resets;
    // When to return freed memory to the system, in milliseconds of Unix time; 0 if none is due.
    std::atomic<int64_t> trim_at{0};
  };
  class CallObserver;
  class CallObserverFactory;

  std::shared_ptr<ConnectionGate> gate_, health_gate_;  // the second may be null
  std::string address_;
  std::string health_address_;
  int port_ = 0;
  std::string role_;
  std::function<void()> on_drain_;
  std::shared_ptr<const TransportSecurity> security_;
  std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::Server> health_server_;  // may be null

  absl::Mutex drain_mu_;  // taken before health_mu_
  bool drained_ ABSL_GUARDED_BY(drain_mu_) = false;
  absl::Mutex health_mu_;
  bool draining_ ABSL_GUARDED_BY(health_mu_) = false;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SERVER_H_
