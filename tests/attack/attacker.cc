// A client that means harm: attacks every listening port of a run's processes until SIGTERM, then
// prints one line of JSON that says what it did.
//
//   attacker KIND TEXT CONNECTIONS
//
// KIND is fill, trickle, reset or flood (see below); TEXT stands in the command lines of the
// processes to attack; CONNECTIONS is how many it keeps open at each port. Ports are looked up
// again all the time, for a run opens and closes some.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "common/comm/store_wire.h"
#include "common/host/file_descriptor.h"
#include "tests/support/listening_ports.h"
#include "tests/support/run_processes.h"

namespace tandem::testing {
namespace {

using Clock = std::chrono::steady_clock;

// Short enough that an attack has no pauses to speak of, long enough that two cores have time for
// the run besides.
constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kLookForPorts = std::chrono::milliseconds(500);
constexpr int kOpenPerTick = 200;  // connections of each port
constexpr size_t kFloodPerTick = 256 << 10;

volatile std::sig_atomic_t stopped = 0;

struct Counts {
  int64_t opened = 0;
  int64_t refused = 0;
  int64_t closed_by_peer = 0;
  int64_t bytes = 0;
};

// Beginnings of what the listeners of a run understand. None is complete.
std::vector<std::string> Openings() {
  std::string store;
  comm::AppendInteger(store, comm::StoreQuery::kValidate);
  comm::AppendInteger(store, comm::kStoreMagic);
  comm::AppendInteger(store, comm::StoreQuery::kChallenge);
  const std::string body(1 << 16, ' ');
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n";
  return {
      "",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // a TLS ClientHello
      head + "Content-Length: 65536\r\n\r\n{\"prompt\":" + body,
      head + "Transfer-Encoding: chunked\r\n\r\n10000\r\n{" + body,
      "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + body,
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", 33) +
          std::string("\x00\x40\x00\x01\x04\x00\x00\x00\x01", 9) + std::string(16384, '\x82'),
      store + std::string(512, 'n'),
      std::string(4096, '\xff'),
  };
}

struct Connection {
  host::FileDescriptor fd;
  std::string_view opening;
  size_t sent = 0;
};

// Returns at once: the handshake may still be under way.
host::FileDescriptor BeginConnecting(int port) {
  host::FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (fd.is_open() &&
      connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EINPROGRESS) {
    return host::FileDescriptor();
  }
  return fd;
}

class Attack {
 public:
  Attack(std::string kind, size_t connections)
      : kind_(std::move(kind)), connections_(connections), openings_(Openings()) {}

  void Tick(const std::set<int>& ports) {
    for (auto it = open_.begin(); it != open_.end();) {
      it = ports.count(it->first) == 0 ? open_.erase(it) : std::next(it);
    }
    for (const int port : ports) {
      attacked_.insert(port);
      std::vector<Connection>& open = open_[port];
      if (kind_ == "reset") {
        Reset(port);
        continue;
      }
      Open(port, open);
      std::erase_if(open, [&](Connection& connection) { return !Use(connection); });
    }
  }

  nlohmann::json Report(int looks) const {
    return {{"kind", kind_},
            {"looks", looks},
            {"ports", attacked_.size()},
            {"opened", counts_.opened},
            {"refused", counts_.refused},
            {"closed_by_peer", counts_.closed_by_peer},
            {"bytes", counts_.bytes},
            {"most_open", most_open_}};
  }

 private:
  std::string_view NextOpening() { return openings_[num_openings_++ % openings_.size()]; }

  void Open(int port, std::vector<Connection>& open) {
    for (int i = 0; i < kOpenPerTick && open.size() < connections_; ++i) {
      host::FileDescriptor fd = BeginConnecting(port);
      if (!fd.is_open()) {
        ++counts_.refused;
        return;
      }
      ++counts_.opened;
      open.push_back({std::move(fd), NextOpening()});
    }
    most_open_ = std::max(most_open_, open.size());
  }

  // False once the peer has closed it.
  bool Use(Connection& connection) {
    char answer[4096];
    const ssize_t got = recv(connection.fd.get(), answer, sizeof(answer), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN)) {
      ++counts_.closed_by_peer;
      return false;
    }
    const std::string_view left = connection.opening.substr(connection.sent);
    if (kind_ == "fill") {
      // Half of them send a few bytes and then nothing.
      if (connection.sent == 0) connection.sent += Send(connection, left.substr(0, 16));
    } else if (kind_ == "trickle") {
      connection.sent += Send(connection, left.substr(0, 1));
    } else {
      Flood(connection);
    }
    return true;
  }

  size_t Send(Connection& connection, std::string_view bytes) {
    if (bytes.empty()) return 0;
    const ssize_t sent =
        send(connection.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return 0;
    counts_.bytes += sent;
    return static_cast<size_t>(sent);
  }

  // The opening, then whatever follows, as fast as it is taken.
  void Flood(Connection& connection) {
    connection.sent += Send(connection, connection.opening.substr(connection.sent));
    if (connection.sent < connection.opening.size()) return;
    static const std::string block(kFloodPerTick, '\x01');
    Send(connection, block);
  }

  // Connects, begins, and breaks off with RST.
  void Reset(int port) {
    std::vector<Connection> round;
    for (size_t i = 0; i < connections_; ++i) {
      host::FileDescriptor fd = BeginConnecting(port);
      if (!fd.is_open()) {
        ++counts_.refused;
        return;
      }
      ++counts_.opened;
      round.push_back({std::move(fd), NextOpening()});
    }
    for (Connection& connection : round) {
      Send(connection, connection.opening);
      const linger at_once{1, 0};
      setsockopt(connection.fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
  }

  const std::string kind_;
  const size_t connections_;
  const std::vector<std::string> openings_;
  size_t num_openings_ = 0;
  size_t most_open_ = 0;
  std::map<int, std::vector<Connection>> open_;  // by port
  std::set<int> attacked_;
  Counts counts_;
};

// Of the run's services, and of the driver itself.
std::set<int> PortsOf(const std::string& text) {
  std::set<int> ports;
  for (const char* program : {"tandem", "tandem-trainer", "tandem-rollout"}) {
    for (const pid_t pid : ProcessesOf(program, text)) ports.merge(ListeningPorts(pid));
  }
  return ports;
}

int Main(const std::string& kind, const std::string& text, size_t connections) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, 5);  // an attacker brings processors of its own
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  std::signal(SIGTERM, [](int) { stopped = 1; });
  std::signal(SIGPIPE, SIG_IGN);
  Attack attack(kind, connections);
  std::set<int> ports;
  Clock::time_point next_look = Clock::now();
  int looks = 0;
  while (stopped == 0) {
    if (Clock::now() >= next_look) {
      ports = PortsOf(text);
      ++looks;
      next_look = Clock::now() + kLookForPorts;
    }
    attack.Tick(ports);
    std::this_thread::sleep_for(kTick);
  }
  std::puts(attack.Report(looks).dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tandem::testing

int main(int argc, char** argv) {
  constexpr std::array<std::string_view, 4> kKinds = {"fill", "trickle", "reset", "flood"};
  const bool known = argc == 4 && std::find(kKinds.begin(), kKinds.end(), argv[1]) != kKinds.end();
  if (!known || std::atoi(argv[3]) <= 0) {
    std::fputs("usage: attacker fill|trickle|reset|flood TEXT CONNECTIONS\n", stderr);
    return 2;
  }
  return tandem::testing::Main(argv[1], argv[2], static_cast<size_t>(std::atoi(argv[3])));
}
