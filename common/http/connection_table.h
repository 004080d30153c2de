// ConnectionTable: a server's connections, indexed by phase and by client.
#ifndef TANDEM_COMMON_HTTP_CONNECTION_TABLE_H_
#define TANDEM_COMMON_HTTP_CONNECTION_TABLE_H_

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/time/time.h"
#include "common/http/limits.h"
#include "common/http/request_reader.h"

namespace tandem::http {

enum class Phase {
  kReading,    // the request is not complete
  kServing,    // a handler has it
  kWriting,    // the response waits for the client to read it
  kLingering,  // the request was refused; the rest of it is read and dropped
};

struct Connection {
  Connection(boost::asio::io_context& io, size_t max_head_bytes)
      : socket(io), timer(io), reader(max_head_bytes) {}

  boost::asio::ip::tcp::socket socket;
  boost::asio::steady_timer timer;  // ends the phase
  RequestReader reader;
  std::string client;  // see Accepted
  absl::Time accepted;
  absl::Time answered;  // when its response began
  bool closed = false;
  bool slow = false;
  bool head_only = false;  // the request is a HEAD
  std::string out;         // the response
  size_t num_sent = 0;
  int64_t counted_bytes = 0;    // this connection's share of the server's buffered bytes
  int64_t discarded_bytes = 0;  // bytes dropped of a refused request

  Phase phase = Phase::kReading;
  std::list<Connection*>::iterator in_phase;
  std::list<Connection*>::iterator in_client;
};

// Only the server's loop thread uses it.
class ConnectionTable {
 public:
  using Pointer = std::shared_ptr<Connection>;

  // Adds it in kReading.
  void Add(Pointer connection);
  void SetPhase(Connection& connection, Phase phase);
  void Remove(Connection& connection);

  int size() const { return static_cast<int>(all_.size()); }
  int Count(Phase phase) const { return static_cast<int>(phases_[Index(phase)].size()); }
  int CountReading(const std::string& client) const;
  // Requests that handlers have: all in one lane, or one client's in the slow lane.
  int CountServing(bool slow) const {
    return slow ? num_slow_ : Count(Phase::kServing) - num_slow_;
  }
  int CountSlow(const std::string& client) const;

  // Eviction candidate when there are too many connections: one already refused, or the one that
  // has kept the server waiting longest. Null if a handler has every connection's request.
  Pointer Victim() const;
  Pointer OldestReading(const std::string& client) const;
  // The connection that buffers the most bytes among those being read or written.
  Pointer Largest() const;

  template <typename Visit>
  void ForEach(const Visit& visit) {
    const std::unordered_map<Connection*, Pointer> copy = all_;
    for (const auto& [key, connection] : copy) visit(connection);
  }

 private:
  struct Client {
    std::list<Connection*> reading;  // oldest first
    int num_slow = 0;
    int num_connections = 0;
  };
  static size_t Index(Phase phase) { return static_cast<size_t>(phase); }
  void Enter(Connection& connection, Phase phase);
  void Leave(Connection& connection);

  std::unordered_map<Connection*, Pointer> all_;
  std::array<std::list<Connection*>, 4> phases_;  // each in order of entry
  std::unordered_map<std::string, Client> clients_;
  int num_slow_ = 0;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_CONNECTION_TABLE_H_
