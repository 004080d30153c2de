// A gRPC server as every Tandem process runs it: health, reflection, keepalive that suits our
// channels, a debug log line for each call, and an orderly stop.
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
  // HOST:PORT; port 0 takes a free one. An address that is in use is an error, never shared.
  std::string listen = "127.0.0.1:0";
  // HOST:PORT of a second port that answers grpc.health.v1 in plaintext and none of the services:
  // for probes, which have no certificates. Empty: none.
  std::string health_listen;
  // Whether `listen` is itself such a port, of a process that serves nothing else.
  bool health_only = false;
  // Stands in messages: "trainer", "rollout".
  std::string role;
  int64_t max_message_bytes = kDefaultMaxMessageBytes;
  // Health names that answer NOT_SERVING until SetServing() says otherwise. "" serves from the
  // start.
  std::vector<std::string> health_names;
  // Called by Drain() after health has turned, before calls are waited for: ends streams that would
  // otherwise last as long as their client, and refuses new work.
  std::function<void()> on_drain;
  // Who may call, and how; null for that of the process.
  std::shared_ptr<const TransportSecurity> security;
};

// Owns the listening socket and gRPC's threads; the services are the caller's and outlive it. They
// use gRPC's callback API: calls that a client resets in bulk are noticed there alone. All
// methods may be called from any thread, but Drain() not from within an RPC.
class Server {
 public:
  // Serves when it returns. Fails with INVALID_ARGUMENT where `listen` is no address, or one that
  // other hosts reach and that neither TLS nor --insecure-plaintext covers; and with UNAVAILABLE
  // where it cannot be bound, saying why.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options,
                                                       const std::vector<grpc::Service*>& services);
  // Cancels what still runs.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return address_; }
  int port() const { return port_; }
  // Of the health port; empty where there is none.
  const std::string& health_address() const { return health_address_; }

  // The answer of grpc.health.v1 for `name`, on both ports. Once draining, every name stays
  // NOT_SERVING.
  void SetServing(const std::string& name, bool serving);

  // Turns every health name to NOT_SERVING, stops accepting, lets calls finish for up to `grace`,
  // cancels the rest, and returns when none is left; the health port answers until then. A second
  // call waits for the first.
  void Drain(absl::Duration grace);

  // Of every call, health and reflection included.
  std::shared_ptr<CallMetrics> metrics() const { return calls_->metrics; }
  // Calls that have been answered since the start, health and reflection included.
  int64_t num_finished_calls() const { return calls_->num_finished.load(); }

 private:
  Server() = default;
  // Counts, times and logs the calls of what is built, whose connections come through `gate`.
  void Observe(grpc::ServerBuilder& builder, const std::shared_ptr<ConnectionGate>& gate);

  // Outlives the server where a call does.
  struct Calls {
    std::atomic<int64_t> num_finished{0};
    std::shared_ptr<CallMetrics> metrics = std::make_shared<CallMetrics>();
    std::shared_ptr<CallerLimit> limit;
    std::shared_ptr<ResetLimit> resets;
    // When freed memory is to be given back, in milliseconds of Unix time; 0 where none is.
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
