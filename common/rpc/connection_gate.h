// ConnectionGate: accepts connections in gRPC's place, so that strangers can neither take all
// descriptors of a process nor keep others out.
//
//   ASSIGN_OR_RETURN(auto gate, ConnectionGate::Listen(address, {.max_connections = 512}));
//   auto acceptor = builder.experimental().AddExternalConnectionAcceptor(FROM_FD, credentials);
//   server = builder.BuildAndStart();
//   gate->Start(std::move(acceptor));
//
// gRPC 1.51 accepts without limit, and its listener is deaf for good once accept() has failed for
// want of descriptors. The gate holds a bounded number of connections. Where there are as many, the
// oldest that has made no call yet makes place, else the one that has been without a call longest;
// where every connection has a call under way, the new one is closed.
//
// gRPC 1.51 also keeps the headers of a call that are not complete, however long they are, and
// copies all of them for each frame that comes. A connection that sends and sends without a call
// or a message that gRPC could make of it is ended.
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
#include "common/net/host_port.h"
#include "common/rpc/peer_endpoint.h"
#include "common/status/file_descriptor.h"

namespace tandem::rpc {

struct GateLimits {
  // Half of what the process may open, so that files, clients and other listeners have the rest; at
  // most 4096.
  static int DefaultMaxConnections();

  int max_connections = DefaultMaxConnections();
  // Bytes that come since the connection's last call or message, once these are so long ago: who
  // sends a message that is too long is told so by then. A few long ones may be on their way at
  // once.
  absl::Duration settle_time = absl::Seconds(2);
  int64_t max_unheard_bytes = 64 << 20;
  // At any time; where there are more, those who sent most go.
  int64_t max_unheard_bytes_of_all = 256 << 20;
  // Where there are more than this, and they have come for so long, they come at this rate at
  // least.
  int64_t slow_bytes = 1 << 20;
  absl::Duration patience = absl::Seconds(10);
  int64_t least_bytes_per_second = 256 << 10;
};

// Thread-safe. Its thread accepts from Start() on, until Stop() or the end of the gate.
class ConnectionGate {
 public:
  using GrpcAcceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens as net::ListenAtAll() does.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Listen(const net::HostPort& address,
                                                                const GateLimits& limits);
  ~ConnectionGate();
  ConnectionGate(const ConnectionGate&) = delete;
  ConnectionGate& operator=(const ConnectionGate&) = delete;

  int port() const { return port_; }

  // Call once, when the gRPC server is up.
  void Start(std::unique_ptr<GrpcAcceptor> acceptor);
  // Closes the listeners. Connections stay gRPC's. Call before the gRPC server shuts down.
  void Stop();

  // A call of the connection from `peer` has begun or is over.
  void OnCallBegin(const PeerEndpoint& peer) { Hear(peer, 1); }
  void OnCallEnd(const PeerEndpoint& peer) { Hear(peer, -1); }
  // A message of one of its calls has come, whole.
  void OnMessage(const PeerEndpoint& peer) { Hear(peer, 0); }

  // Ends the connection from `peer`, as EndConnection() does. Returns false where there is none.
  bool End(const PeerEndpoint& peer);

  // For tests.
  int num_connections() const;

 private:
  struct Connection {
    PeerEndpoint peer;
    int fd = -1;  // gRPC's: the number may be another's by now
    int num_calls = 0;
    // A call or message was heard since the last look.
    bool is_heard = false;
    uint64_t heard_bytes = 0;  // that had come by then
    // Since then, and for how long they have come, once they are more than a few.
    uint64_t unheard_bytes = 0;
    absl::Duration unheard_time;
  };
  using Connections = std::list<Connection>;

  ConnectionGate(std::vector<FileDescriptor> listeners, int port, const GateLimits& limits);
  void Run();
  void AcceptFrom(const FileDescriptor& listener);
  size_t max_connections() const { return static_cast<size_t>(limits_.max_connections); }
  bool MakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Erase(Connections::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hear(const PeerEndpoint& peer, int change_of_calls);
  // Looks at what has come of each connection, and ends those that nothing is made of.
  void Watch() ABSL_LOCKS_EXCLUDED(mu_);
  bool IsUnheard(const Connection& connection) const;
  void EndUnheard(Connections::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WarnOfFull() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Wake();

  const GateLimits limits_;
  const int port_;
  std::vector<FileDescriptor> listeners_;  // the thread's from Start() on
  FileDescriptor wake_;
  std::unique_ptr<GrpcAcceptor> acceptor_;
  std::atomic<bool> stop_{false};
  absl::Time paused_until_ = absl::InfinitePast();  // the thread's

  mutable absl::Mutex mu_;
  Connections strangers_ ABSL_GUARDED_BY(mu_);  // no call yet; the oldest first
  Connections callers_ ABSL_GUARDED_BY(mu_);    // by their last call; the longest ago first
  struct Place {
    bool is_caller = false;
    Connections::iterator at;
  };
  std::map<PeerEndpoint, Place> places_ ABSL_GUARDED_BY(mu_);
  absl::Time next_warning_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time next_watch_ = absl::InfinitePast();  // this and the next the thread's
  absl::Time last_watch_ = absl::InfiniteFuture();
  std::thread thread_;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CONNECTION_GATE_H_
