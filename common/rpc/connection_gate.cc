#include "common/rpc/connection_gate.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::rpc {
namespace {

constexpr int kMostConnections = 4096;
// While strangers fill half of the places, connections are taken at 1600 a second at most. So one
// that means well has the time that as many others take, a third of a second where the process may
// open 1024 files, to make its first call, and has not waited for longer than that in the queue.
constexpr int kBacklog = 512;
constexpr int kAcceptsAtOnce = 64;
constexpr absl::Duration kCrowdPause = absl::Milliseconds(40);
// After an accept() that failed for want of descriptors or memory.
constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);
constexpr absl::Duration kWarningPause = absl::Seconds(10);
// Between looks at which connections are still there.
constexpr absl::Duration kLookPause = absl::Milliseconds(100);

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

absl::StatusOr<std::vector<SocketAddress>> Resolve(const net::HostPort& address) {
  const bool any = net::IsAnyAddress(address);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(any ? nullptr : address.host.c_str(),
                                  absl::StrCat(address.port).c_str(), &hints, &found);
  if (failure != 0) return absl::UnavailableError(gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::vector<SocketAddress> out;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& one = out.emplace_back();
    std::memcpy(&one.bytes, at->ai_addr, at->ai_addrlen);
    one.length = at->ai_addrlen;
  }
  // A socket of IPv6 takes connections of both families then.
  std::stable_sort(out.begin(), out.end(), [](const SocketAddress& a, const SocketAddress& b) {
    return a.bytes.ss_family == AF_INET6 && b.bytes.ss_family != AF_INET6;
  });
  return out;
}

// The port is at the same place in both kinds of address.
in_port_t& PortOf(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in&>(address.bytes).sin_port;
}

// Not open where it cannot listen there; errno says why. `port` 0 becomes that which was taken.
FileDescriptor ListenAt(SocketAddress address, bool both_families, int& port) {
  PortOf(address) = htons(static_cast<uint16_t>(port));
  FileDescriptor fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.bytes.ss_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? &off : &on, sizeof(on));
  }
  if (!fd.is_open() ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address.bytes), address.length) != 0 ||
      listen(fd.get(), kBacklog) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.bytes), &address.length) != 0) {
    return FileDescriptor();
  }
  port = ntohs(PortOf(address));
  return fd;
}

}  // namespace

int ConnectionGate::DefaultMaxConnections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostConnections;
  const rlim_t half = files.rlim_cur / 2;
  return half < kMostConnections ? std::max(1, static_cast<int>(half)) : kMostConnections;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(const net::HostPort& address,
                                                                       int max_connections) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(address));
  const bool any = net::IsAnyAddress(address);
  std::vector<FileDescriptor> listeners;
  int port = address.port;
  std::string why = "no address";
  for (const SocketAddress& one : addresses) {
    FileDescriptor fd = ListenAt(one, any, port);
    if (!fd.is_open()) {
      why = std::strerror(errno);
      if (errno == EADDRINUSE) break;  // half of the addresses would be another's
      continue;
    }
    listeners.push_back(std::move(fd));
    if (any && one.bytes.ss_family == AF_INET6) break;
  }
  if (listeners.empty() || why == std::strerror(EADDRINUSE)) return absl::UnavailableError(why);
  auto gate = absl::WrapUnique(new ConnectionGate(std::move(listeners), port, max_connections));
  if (!gate->wake_.is_open()) return absl::UnavailableError(std::strerror(errno));
  return gate;
}

ConnectionGate::ConnectionGate(std::vector<FileDescriptor> listeners, int port, int max_connections)
    : max_connections_(max_connections),
      port_(port),
      listeners_(std::move(listeners)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ConnectionGate::~ConnectionGate() { Stop(); }

void ConnectionGate::Start(std::unique_ptr<GrpcAcceptor> acceptor) {
  acceptor_ = std::move(acceptor);
  thread_ = std::thread([this] { Run(); });
}

void ConnectionGate::Stop() {
  stop_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
  listeners_.clear();
}

void ConnectionGate::Wake() { eventfd_write(wake_.get(), 1); }

void ConnectionGate::Run() {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  for (const FileDescriptor& listener : listeners_) entries.push_back({listener.get(), POLLIN, 0});
  while (!stop_) {
    const absl::Duration pause = paused_until_ - absl::Now();
    const bool paused = pause > absl::ZeroDuration();
    const int ready =
        paused ? poll(entries.data(), 1,
                      static_cast<int>(absl::ToInt64Milliseconds(pause + absl::Milliseconds(1))))
               : poll(entries.data(), entries.size(), -1);
    if (ready <= 0 || paused) continue;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (entries[i + 1].revents != 0) AcceptFrom(listeners_[i]);
    }
  }
}

void ConnectionGate::AcceptFrom(const FileDescriptor& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        paused_until_ = absl::Now() + kExhaustedPause;
        absl::MutexLock lock(&mu_);
        MakeRoom();
        return;
      }
      if (errno == EAGAIN) return;
      continue;  // that one connection is gone
    }
    FileDescriptor owned(fd);
    const std::optional<PeerEndpoint> peer = PeerEndpoint::Of(fd);
    if (!peer.has_value()) continue;  // gone already
    {
      absl::MutexLock lock(&mu_);
      // Its port is used again: the former connection is over.
      if (const auto old = places_.find(*peer); old != places_.end()) {
        Erase(old->second.is_caller ? callers_ : strangers_, old->second.at);
      }
      if (places_.size() >= max_connections_ && !MakeRoom()) {
        WarnOfFull();
        continue;
      }
      strangers_.push_back({*peer, fd, 0});
      places_[*peer] = {false, std::prev(strangers_.end())};
      if (strangers_.size() > max_connections_ / 2) {
        paused_until_ = std::max(paused_until_, absl::Now() + kCrowdPause);
      }
    }
    GrpcAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener.get();
    connection.fd = owned.Release();
    acceptor_->HandleNewConnection(&connection);
  }
}

void ConnectionGate::WarnOfFull() {
  if (absl::Now() < next_warning_) return;
  next_warning_ = absl::Now() + kWarningPause;
  telemetry::LogWarning("connections are refused: each that is open has a call under way",
                        {{"port", port_}, {"connections", places_.size()}});
}

void ConnectionGate::Erase(Connections& list, Connections::iterator it) {
  places_.erase(it->peer);
  list.erase(it);
}

void ConnectionGate::ForgetClosed() {
  if (absl::Now() < next_look_) return;
  next_look_ = absl::Now() + kLookPause;
  for (Connections* list : {&strangers_, &callers_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto next = std::next(it);
      if (PeerEndpoint::Of(it->fd) != it->peer) Erase(*list, it);
      it = next;
    }
  }
}

bool ConnectionGate::MakeRoom() {
  ForgetClosed();
  if (places_.size() < max_connections_) return true;
  const auto idle = std::find_if(callers_.begin(), callers_.end(),
                                 [](const Connection& caller) { return caller.num_calls == 0; });
  Connections& list = strangers_.empty() ? callers_ : strangers_;
  const auto victim = strangers_.empty() ? idle : strangers_.begin();
  if (victim == list.end()) return false;
  EndConnection(victim->fd, victim->peer, {port_});
  Erase(list, victim);
  return true;
}

void ConnectionGate::OnCallBegin(const std::string& peer) {
  const std::optional<PeerEndpoint> endpoint = PeerEndpoint::Parse(peer);
  if (!endpoint.has_value()) return;
  absl::MutexLock lock(&mu_);
  const auto it = places_.find(*endpoint);
  if (it == places_.end()) return;
  callers_.splice(callers_.end(), it->second.is_caller ? callers_ : strangers_, it->second.at);
  it->second.is_caller = true;
  ++it->second.at->num_calls;
}

void ConnectionGate::OnCallEnd(const std::string& peer) {
  const std::optional<PeerEndpoint> endpoint = PeerEndpoint::Parse(peer);
  if (!endpoint.has_value()) return;
  absl::MutexLock lock(&mu_);
  const auto it = places_.find(*endpoint);
  // One that has come since from the same port has made no call.
  if (it != places_.end() && it->second.at->num_calls > 0) --it->second.at->num_calls;
}

int ConnectionGate::num_connections() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int>(places_.size());
}

}  // namespace tandem::rpc
