// Accepts, evicts, times out and closes connections.
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "absl/time/clock.h"
#include "common/http/server_impl.h"
#include "common/status/exceptions.h"
#include "common/telemetry/log.h"

namespace tandem::http {
namespace {

using boost::asio::ip::tcp;

// Connections accepted in a row before others are served again.
constexpr int kAcceptsOfATurn = 64;
// Pause before the loop retries a port that cannot accept.
constexpr std::chrono::milliseconds kAcceptPause(20);
constexpr size_t kSpareDescriptors = 16;
constexpr absl::Duration kBetweenLines = absl::Minutes(1);

}  // namespace

Server::Impl::Impl(const Limits& limits, HostPolicy policy, Handler& handler,
                   net::Listener listener)
    : limits_(limits),
      policy_(std::move(policy)),
      handler_(handler),
      io_(/*concurrency_hint=*/1),
      acceptor_(io_, listener.address.is_ipv6() ? tcp::v6() : tcp::v4(), listener.fd.Release()),
      accept_timer_(io_),
      spares_(kSpareDescriptors),
      quick_(limits.quick.num_threads),
      slow_(limits.slow.num_threads) {
  thread_ = std::thread([this] { Run(); });
}

Server::Impl::~Impl() { Stop(); }

void Server::Impl::Run() {
  const auto work = boost::asio::make_work_guard(io_);
  while (!io_.stopped()) {
    try {
      if (!accept_armed_ && !stopping_) ArmAccept();
      io_.run();
    } catch (const std::exception& error) {
      telemetry::LogError("exception in an HTTP server's event loop",
                          {{"error", StatusOf(error).message()}});
    }
  }
}

bool Server::Impl::AwaitIdle(absl::Time deadline) {
  const auto idle = [this] {
    mu_.AssertHeld();
    return num_busy_ == 0;
  };
  absl::MutexLock lock(&mu_);
  return mu_.AwaitWithDeadline(absl::Condition(&idle), deadline);
}

void Server::Impl::Stop() {
  if (!thread_.joinable()) return;
  absl::Mutex mu;
  bool closed = false;
  boost::asio::post(io_, [&] {
    stopping_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    accept_timer_.cancel(ignored);
    table_.ForEach([this](const Pointer& connection) {
      if (connection->phase == Phase::kServing) {
        // Its handler notices, and still uses the descriptor.
        shutdown(connection->socket.native_handle(), SHUT_RDWR);
      } else {
        Close(connection);
      }
    });
    absl::MutexLock lock(&mu);
    closed = true;
  });
  {
    absl::MutexLock lock(&mu);
    mu.Await(absl::Condition(&closed));
  }
  quick_.Stop();
  slow_.Stop();
  io_.stop();
  thread_.join();
  // The handlers that were still running have said so, or never began.
  table_.ForEach([this](const Pointer& connection) { Close(connection); });
}

void Server::Impl::ArmAccept() {
  acceptor_.async_wait(tcp::acceptor::wait_read, [this](const boost::system::error_code& error) {
    accept_armed_ = false;
    if (stopping_ || error == boost::asio::error::operation_aborted) return;
    AcceptSome();
  });
  accept_armed_ = true;
}

void Server::Impl::AcceptSome() {
  for (int i = 0; i < kAcceptsOfATurn; ++i) {
    Accepted accepted = Accept(acceptor_.native_handle());
    if (accepted.fd >= 0) {
      Admit(std::move(accepted));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (!net::IsOutOfDescriptors(errno)) continue;  // this one has gone
    // Out of descriptors: free the spare ones first, then those of waiting connections.
    if (spares_.Release() || MakeRoom()) continue;
    // Nothing to free here. Without a pause the loop would spin over the same error.
    accept_timer_.expires_after(kAcceptPause);
    accept_timer_.async_wait([this](const boost::system::error_code& error) {
      accept_armed_ = false;
      if (!stopping_ && !error) AcceptSome();
    });
    accept_armed_ = true;
    return;
  }
  ArmAccept();
}

void Server::Impl::Evict(const Pointer& victim) {
  ++num_evicted_;
  if (absl::Now() - last_line_ > kBetweenLines) {
    last_line_ = absl::Now();
    telemetry::LogWarning("HTTP connections closed to make room",
                          {{"connections", std::exchange(num_evicted_, 0)},
                           {"max_connections", limits_.max_connections}});
  }
  Close(victim);
}

bool Server::Impl::MakeRoom() {
  const Pointer victim = table_.Victim();
  if (victim != nullptr) Evict(victim);
  return victim != nullptr;
}

void Server::Impl::Admit(Accepted accepted) {
  const auto connection = std::make_shared<Connection>(io_, limits_.max_head_bytes);
  boost::system::error_code error;
  // Both families in one way: the socket is not bound or connected through Asio.
  connection->socket.assign(tcp::v4(), accepted.fd, error);
  if (error) {
    ::close(accepted.fd);
    return;
  }
  if (table_.CountReading(accepted.client) >= PerAddress(limits_.max_connections)) {
    Evict(table_.OldestReading(accepted.client));
  }
  if (table_.size() >= limits_.max_connections && !MakeRoom()) return;  // closes it
  connection->client = std::move(accepted.client);
  connection->accepted = absl::Now();
  table_.Add(connection);
  Guard(connection, [&] {
    SetDeadline(connection, limits_.head_timeout);
    // If the loop lags behind new connections, a short request has already arrived: handle it
    // before a newer connection can take its place.
    OnInput(connection);
  });
}

void Server::Impl::Close(const Pointer& connection) {
  if (std::exchange(connection->closed, true)) return;
  CountBytes(connection, 0);
  SetPhase(connection, Phase::kLingering);  // no longer busy
  boost::system::error_code ignored;
  connection->timer.cancel(ignored);
  connection->socket.close(ignored);
  table_.Remove(*connection);
  spares_.Refill();
}

void Server::Impl::SetPhase(const Pointer& connection, Phase phase) {
  const auto is_busy = [](Phase p) { return p == Phase::kServing || p == Phase::kWriting; };
  const int change = (is_busy(phase) ? 1 : 0) - (is_busy(connection->phase) ? 1 : 0);
  table_.SetPhase(*connection, phase);
  if (change == 0) return;
  absl::MutexLock lock(&mu_);
  num_busy_ += change;
}

void Server::Impl::SetDeadline(const Pointer& connection, absl::Duration after) {
  connection->timer.expires_after(absl::ToChronoMilliseconds(after));
  connection->timer.async_wait([this, connection](const boost::system::error_code& error) {
    // One that was moved on while this call was on its way.
    const bool due = connection->timer.expiry() <= std::chrono::steady_clock::now();
    if (error || connection->closed || !due) return;
    Guard(connection, [&] { OnDeadline(connection); });
  });
}

void Server::Impl::OnDeadline(const Pointer& connection) {
  if (connection->phase == Phase::kReading && connection->reader.started()) {
    Refuse(connection, {408, "REQUEST_TIMEOUT",
                        "the request did not arrive completely in time; send it without pauses"});
  } else if (connection->phase != Phase::kServing) {
    Close(connection);
  }
}

void Server::Impl::CountBytes(const Pointer& connection, int64_t bytes) {
  buffered_bytes_ += bytes - std::exchange(connection->counted_bytes, bytes);
  while (buffered_bytes_ > limits_.max_buffered_bytes) {
    const Pointer largest = table_.Largest();
    if (largest == nullptr || largest->counted_bytes == 0) break;
    Evict(largest);
  }
}

}  // namespace tandem::http
