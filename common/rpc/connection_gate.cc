#include "common/rpc/connection_gate.h"

#include <linux/tcp.h>
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
#include "absl/time/clock.h"
#include "common/net/listener.h"
#include "common/net/poll_timeout.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::rpc {
namespace {

constexpr int kMostConnections = 4096;
// While strangers fill half of the places, accepts 1600 connections per second at most. A
// well-meaning client then has the time that as many others take to arrive (a third of a second if
// the process may open 1024 files) to make its first call, and has not queued for longer than that.
constexpr int kBacklog = 512;
constexpr int kAcceptsAtOnce = 64;
constexpr absl::Duration kCrowdPause = absl::Milliseconds(40);
// Pause after an accept() that failed for lack of descriptors or memory.
constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);
constexpr absl::Duration kWarningPause = absl::Seconds(10);
// Time between checks for closed connections.
constexpr absl::Duration kLookPause = absl::Milliseconds(100);

constexpr absl::Duration kWatchPause = absl::Milliseconds(250);
// Allowance for pings and for a call's headers.
constexpr uint64_t kFewBytes = 64 << 10;

// Bytes that the system has acknowledged since the connection opened; 0 if `fd` is no connection.
uint64_t ReceivedBytes(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

}  // namespace

int GateLimits::DefaultMaxConnections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return kMostConnections;
  const rlim_t half = files.rlim_cur / 2;
  return half < kMostConnections ? std::max(1, static_cast<int>(half)) : kMostConnections;
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Listen(const net::HostPort& address,
                                                                       const GateLimits& limits) {
  ASSIGN_OR_RETURN(std::vector<net::Listener> listening, net::ListenAtAll(address, kBacklog));
  const int port = listening.front().address.port();
  std::vector<host::FileDescriptor> listeners;
  for (net::Listener& listener : listening) listeners.push_back(std::move(listener.fd));
  auto gate = absl::WrapUnique(new ConnectionGate(std::move(listeners), port, limits));
  if (!gate->wake_.is_open()) return absl::UnavailableError(std::strerror(errno));
  return gate;
}

ConnectionGate::ConnectionGate(std::vector<host::FileDescriptor> listeners, int port,
                               const GateLimits& limits)
    : limits_(limits),
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
  for (const host::FileDescriptor& listener : listeners_)
    entries.push_back({listener.get(), POLLIN, 0});
  while (!stop_) {
    const absl::Time now = absl::Now();
    if (now >= next_watch_) Watch();
    const bool paused = paused_until_ > now;
    const absl::Time until = paused ? std::min(paused_until_, next_watch_) : next_watch_;
    const int ready =
        poll(entries.data(), paused ? 1 : entries.size(), net::PollTimeout(until - now));
    if (ready <= 0 || paused) continue;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (entries[i + 1].revents != 0) AcceptFrom(listeners_[i]);
    }
  }
}

void ConnectionGate::AcceptFrom(const host::FileDescriptor& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const int fd = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (net::IsOutOfDescriptors(errno)) {
        paused_until_ = absl::Now() + kExhaustedPause;
        absl::MutexLock lock(&mu_);
        MakeRoom();
        return;
      }
      if (errno == EAGAIN) return;
      continue;  // that one connection is gone
    }
    host::FileDescriptor owned(fd);
    const std::optional<PeerEndpoint> peer = PeerEndpoint::Of(fd);
    if (!peer.has_value()) continue;  // gone already
    {
      absl::MutexLock lock(&mu_);
      // The peer reuses its port: the former connection is over.
      if (const auto old = places_.find(*peer); old != places_.end()) {
        Erase(old->second.at);
      }
      if (places_.size() >= max_connections() && !MakeRoom()) {
        WarnOfFull();
        continue;
      }
      next_watch_ = std::min(next_watch_, absl::Now() + kWatchPause);
      strangers_.push_back({.peer = *peer, .fd = fd});
      places_[*peer] = {false, std::prev(strangers_.end())};
      if (strangers_.size() > max_connections() / 2) {
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
  telemetry::LogWarning("connections refused: every open connection has a call in flight",
                        {{"port", port_}, {"connections", places_.size()}});
}

void ConnectionGate::Erase(Connections::iterator it) {
  const auto place = places_.find(it->peer);
  Connections& list = place->second.is_caller ? callers_ : strangers_;
  places_.erase(place);
  list.erase(it);
}

void ConnectionGate::ForgetClosed() {
  if (absl::Now() < next_look_) return;
  next_look_ = absl::Now() + kLookPause;
  for (Connections* list : {&strangers_, &callers_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto next = std::next(it);
      if (PeerEndpoint::Of(it->fd) != it->peer) Erase(it);
      it = next;
    }
  }
}

bool ConnectionGate::MakeRoom() {
  ForgetClosed();
  if (places_.size() < max_connections()) return true;
  const auto idle = std::find_if(callers_.begin(), callers_.end(),
                                 [](const Connection& caller) { return caller.num_calls == 0; });
  Connections& list = strangers_.empty() ? callers_ : strangers_;
  const auto victim = strangers_.empty() ? idle : strangers_.begin();
  if (victim == list.end()) return false;
  EndConnection(victim->fd, victim->peer, port_);
  Erase(victim);
  return true;
}

void ConnectionGate::Hear(const PeerEndpoint& peer, int change_of_calls) {
  absl::MutexLock lock(&mu_);
  const auto it = places_.find(peer);
  if (it == places_.end()) return;
  Connection& connection = *it->second.at;
  connection.is_heard = true;
  // A newer connection from the same port has made no call.
  connection.num_calls = std::max(0, connection.num_calls + change_of_calls);
  if (change_of_calls <= 0) return;
  callers_.splice(callers_.end(), it->second.is_caller ? callers_ : strangers_, it->second.at);
  it->second.is_caller = true;
}

bool ConnectionGate::IsUnheard(const Connection& connection) const {
  const auto bytes = static_cast<int64_t>(connection.unheard_bytes);
  const absl::Duration time = connection.unheard_time;
  if (time < limits_.settle_time) return false;
  if (bytes > limits_.max_unheard_bytes) return true;
  return bytes > limits_.slow_bytes && time > limits_.patience &&
         static_cast<double>(bytes) / absl::ToDoubleSeconds(time) <
             static_cast<double>(limits_.least_bytes_per_second);
}

void ConnectionGate::Watch() {
  absl::MutexLock lock(&mu_);
  const absl::Time now = absl::Now();
  // A process that was stopped did not check meanwhile.
  const absl::Duration passed =
      std::clamp(now - last_watch_, absl::ZeroDuration(), 2 * kWatchPause);
  last_watch_ = now;
  next_watch_ = places_.empty() ? absl::InfiniteFuture() : now + kWatchPause;
  int64_t of_all = 0;
  for (Connections* list : {&strangers_, &callers_}) {
    for (auto it = list->begin(); it != list->end();) {
      const auto at = it++;
      if (PeerEndpoint::Of(at->fd) != at->peer) {
        Erase(at);
        continue;
      }
      const uint64_t received = ReceivedBytes(at->fd);
      if (at->is_heard || received < at->heard_bytes) {
        at->is_heard = false;
        at->heard_bytes = received;
        at->unheard_time = absl::ZeroDuration();
      }
      at->unheard_bytes = received - at->heard_bytes;
      if (at->unheard_bytes > kFewBytes) at->unheard_time += passed;
      if (IsUnheard(*at)) {
        EndUnheard(at);
      } else {
        of_all += static_cast<int64_t>(at->unheard_bytes);
      }
    }
  }
  while (of_all > limits_.max_unheard_bytes_of_all) {
    const auto most = std::max_element(places_.begin(), places_.end(), [](auto& a, auto& b) {
      return a.second.at->unheard_bytes < b.second.at->unheard_bytes;
    });
    of_all -= static_cast<int64_t>(most->second.at->unheard_bytes);
    EndUnheard(most->second.at);
  }
}

void ConnectionGate::EndUnheard(Connections::iterator it) {
  if (EndConnection(it->fd, it->peer, port_) && absl::Now() >= next_warning_) {
    next_warning_ = absl::Now() + kWarningPause;
    telemetry::LogWarning("connection closed: it sends neither calls nor messages",
                          {{"port", port_}, {"bytes", it->unheard_bytes}});
  }
  Erase(it);
}

bool ConnectionGate::End(const PeerEndpoint& peer) {
  absl::MutexLock lock(&mu_);
  const auto it = places_.find(peer);
  if (it == places_.end()) return false;
  const Connections::iterator at = it->second.at;
  const bool ended = EndConnection(at->fd, peer, port_);
  Erase(at);
  return ended;
}

int ConnectionGate::num_connections() const {
  absl::MutexLock lock(&mu_);
  return static_cast<int>(places_.size());
}

}  // namespace tandem::rpc
