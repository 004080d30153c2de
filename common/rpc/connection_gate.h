// ConnectionGate: accepts connections in gRPC's place, so that strangers can neither exhaust the
// process's descriptors nor keep others out.
//
//   ASSIGN_OR_RETURN(auto gate, ConnectionGate::Listen(address, {.max_connections = 512}));
//   auto acceptor = builder.experimental().AddExternalConnectionAcceptor(FROM_FD, credentials);
//   server = builder.BuildAndStart();
//   gate->Start(std::move(acceptor));
//
// gRPC 1.51 accepts without limit, and its listener never recovers once accept() has failed for
// lack of descriptors. The gate holds a bounded number of connections. At the limit it closes the
// oldest connection that has not made a call, or else the caller that has been idle longest; if
// every connection has a call in flight, it closes the new one.
//
// gRPC 1.51 also buffers the incomplete headers of a call, however long they are, and copies all of
// them for each new frame. The gate ends a connection that keeps sending bytes without completing a
// call or a message.
#ifndef TANDEM_COMMON_RPC_CONNECTION_GATE_H_
#define TANDEM_COMMON_RPC_CONNECTION_GATE_H_

#include <grpcpp/server_builder.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/host/file_descriptor.h"
#include "common/net/host_port.h"
#include "common/rpc/peer_endpoint.h"

namespace tandem::rpc {

struct GateLimits {
  // Half of the process's descriptor limit, which leaves the rest to files, clients and other
  // listeners; at most 4096.
  static int DefaultMaxConnections();

  int max_connections = DefaultMaxConnections();
  // Most bytes that a connection may have sent since its last call or message, once `settle_time`
  // has passed: by then the sender of a message that is too long has its error. Leaves room for a
  // few long messages in flight.
  absl::Duration settle_time = absl::Seconds(2);
  int64_t max_unheard_bytes = 64 << 20;
  // The limit for all connections together, at any time; the gate ends the largest senders first.
  int64_t max_unheard_bytes_of_all = 256 << 20;
  // Beyond `slow_bytes` of such bytes, and after `patience`, their rate must be at least
  // `least_bytes_per_second`.
  int64_t slow_bytes = 1 << 20;
  absl::Duration patience = absl::Seconds(10);
  int64_t least_bytes_per_second = 256 << 10;
};

// Thread-safe. Its own thread accepts from Start() until Stop() or destruction.
class ConnectionGate {
 public:
  using GrpcAcceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens like net::ListenAtAll().
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(const net::HostPort& address,
                                                                const GateLimits& limits);
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  int port() const { return port_; }

  // Call once, after the gRPC server has started.
  void Start(std::unique_ptr<GrpcAcceptor> acceptor);
  // Closes the listeners; gRPC keeps its connections. Call before the gRPC server shuts down.
  void Stop();

  // Report the start and the end of a call on the connection from `peer`.
  void OnCallBegin(const PeerEndpoint& peer) { Hear(peer, 1); }
  void OnCallEnd(const PeerEndpoint& peer) { Hear(peer, -1); }
  // Reports that a complete message of one of its calls arrived.
  void OnMessage(const PeerEndpoint& peer) { Hear(peer, 0); }

  // Ends the connection from `peer`, like EndConnection(). Returns false if there is none.
  bool End(const PeerEndpoint& peer);

  // For tests.
  int num_connections() const;

 private:
  struct Connection {
    PeerEndpoint peer;
    int fd = -1;  // owned by gRPC: the number may belong to another file by now
    int num_calls = 0;
    // A call or message arrived since the last Watch().
    bool is_heard = false;
    uint64_t heard_bytes = 0;  // bytes received by the last call or message
    // Bytes received since then, and for how long they have exceeded a few.
    uint64_t unheard_bytes = 0;
    absl::Duration unheard_time;
  };
  using Connections = std::list<Connection>;

  ConnectionGate(std::vector<host::FileDescriptor> listeners, int port, const GateLimits& limits);
  void Run();
  void AcceptFrom(const host::FileDescriptor& listener);
  size_t max_connections() const { return static_cast<size_t>(limits_.max_connections); }
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Connections::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hear(const PeerEndpoint& peer, int change_of_calls);
  // Checks the bytes received on each connection, and ends those that complete no call or message.
  void Watch() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsUnheard(const Connection& connection) const;
  void EndUnheard(Connections::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WarnOfFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();

  const GateLimits limits_;
  const int port_;
  std::vector<host::FileDescriptor> listeners_;  // only the thread uses them after Start()
  host::FileDescriptor wake_;
  std::unique_ptr<GrpcAcceptor> acceptor_;
  std::atomic<bool> stop_{false};
  absl::Time paused_until_ = absl::InfinitePast();  // only the thread uses it

  mutable absl::Mutex mu_;
  Connections strangers_ ABSL_GUARDED_BY(mu_);  // no call yet; oldest first
  Connections callers_ ABSL_GUARDED_BY(mu_);    // ordered by last call; least recent first
  struct Place {
    bool is_caller = false;
    Connections::iterator at;
  };
  std::map<PeerEndpoint, Place> places_ ABSL_GUARDED_BY(mu_);
  absl::Time next_warning_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time next_watch_ = absl::InfinitePast();  // only the thread uses this and the next
  absl::Time last_watch_ = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CONNECTION_GATE_H_
