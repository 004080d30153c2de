// The sockets of the rendezvous store (store_protocol.h), on one thread over poll().
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/acceptor.h"
#include "common/comm/address_name.h"
#include "common/comm/process_group.h"
#include "common/comm/store_listener.h"
#include "common/comm/store_protocol.h"
#include "common/host/file_descriptor.h"
#include "common/net/poll_timeout.h"
#include "common/status/status_macros.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kResolveTime = absl::Minutes(2);
constexpr int kMaxHeardAtOnce = 16;

// Takes at most half of the descriptors that the process may open; the rest of it needs some too.
StoreLimits LimitsOfThisProcess() {
  StoreLimits limits;
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    limits.max_clients = std::min<size_t>(limits.max_clients, descriptors.rlim_cur / 2);
  }
  limits.max_strangers = std::min(limits.max_strangers, limits.max_clients / 2);
  return limits;
}

class PollingStoreServer : public StoreServer {
 public:
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(const StoreServerOptions& options) {
    ASSIGN_OR_RETURN(StoreListener listener,
                     ListenForStore(options.host, options.port, absl::Now() + kResolveTime));
    host::FileDescriptor wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake.is_open()) {
      return absl::UnavailableError(
          absl::StrCat("store: cannot make an eventfd: ", std::strerror(errno)));
    }
    return absl::WrapUnique<StoreServer>(
        new PollingStoreServer(options, std::move(listener), std::move(wake)));
  }

  ~PollingStoreServer() override {
    stop_ = true;
    Wake();
    thread_.join();
  }

  int port() const override { return listener_.port; }
  const std::string& local_host() const override { return local_host_; }

  void SetSecret(std::string secret) override {
    {
      absl::MutexLock lock(&mu_);
      next_secret_ = std::move(secret);
    }
    Wake();
  }

 private:
  PollingStoreServer(const StoreServerOptions& options, StoreListener listener,
                     host::FileDescriptor wake)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        local_host_(listener_.everywhere ? "127.0.0.1" : options.host),
        protocol_(options.secret, LimitsOfThisProcess()),
        thread_([this] { Run(); }) {}

  void Wake() {
    const uint64_t one = 1;
    while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  void AdoptSecret() {
    uint64_t times = 0;
    while (read(wake_.get(), &times, sizeof(times)) < 0 && errno == EINTR) {
    }
    std::optional<std::string> secret;
    {
      absl::MutexLock lock(&mu_);
      secret.swap(next_secret_);
    }
    if (!secret.has_value()) return;
    // First read what members sent before the change.
    for (auto& [id, fd] : sockets_) Hear(id, fd);
    protocol_.SetSecret(*std::move(secret), absl::Now());
  }

  void Run() {
    while (true) {
      const absl::Time now = absl::Now();
      absl::Time until = protocol_.Expire(now);
      const bool accepts = !acceptor_.is_paused(now);
      if (!accepts) until = std::min(until, acceptor_.paused_until());
      CloseOver();
      std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
      for (const host::FileDescriptor& socket : listener_.sockets) {
        entries.push_back({accepts ? socket.get() : -1, POLLIN, 0});
      }
      std::vector<uint64_t> ids;
      for (const auto& [id, fd] : sockets_) {
        const int in = protocol_.IsHeard(id) ? POLLIN : 0;
        const int out = protocol_.Output(id).empty() ? 0 : POLLOUT;
        entries.push_back({fd.get(), static_cast<short>(in | out), 0});
        ids.push_back(id);
      }
      if (poll(entries.data(), entries.size(), net::PollTimeout(until - now)) < 0)
        continue;  // EINTR
      if (stop_) return;
      if (entries[0].revents != 0) AdoptSecret();
      const size_t first = 1 + listener_.sockets.size();
      for (size_t i = 0; i < ids.size(); ++i) {
        if (entries[first + i].revents != 0) Hear(ids[i], sockets_.at(ids[i]));
      }
      // To all clients: a query may have produced replies for others.
      for (auto& [id, fd] : sockets_) Send(id, fd);
      CloseOver();
      for (size_t i = 0; i < listener_.sockets.size(); ++i) {
        if (entries[1 + i].revents != 0) Accept(listener_.sockets[i]);
      }
    }
  }

  void Accept(const host::FileDescriptor& listener) {
    acceptor_.Accept(
        listener,
        [this](host::FileDescriptor fd, const sockaddr_storage& peer, socklen_t length) {
          const int on = 1;
          setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
          sockets_[protocol_.Connect(AddressName(peer, length), absl::Now())] = std::move(fd);
        },
        [this] {
          const bool evicted = protocol_.EvictStranger();
          CloseOver();
          return evicted;
        });
  }

  void Hear(uint64_t id, const host::FileDescriptor& fd) {
    char buffer[16384];
    // One client that sends without end must not keep the thread from the others.
    for (int i = 0; i < kMaxHeardAtOnce && protocol_.IsHeard(id); ++i) {
      const ssize_t n = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (n > 0) {
        protocol_.Receive(id, {buffer, static_cast<size_t>(n)}, absl::Now());
        if (n == sizeof(buffer)) continue;
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        protocol_.Disconnect(id);
      }
      return;
    }
  }

  void Send(uint64_t id, const host::FileDescriptor& fd) {
    while (!protocol_.Output(id).empty()) {
      const absl::string_view bytes = protocol_.Output(id);
      const ssize_t n = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        protocol_.Sent(id, static_cast<size_t>(n), absl::Now());
      } else {
        if (errno != EAGAIN && errno != EINTR) protocol_.Disconnect(id);
        return;
      }
    }
  }

  void CloseOver() {
    for (const uint64_t id : protocol_.TakeOver()) sockets_.erase(id);
  }

  const StoreListener listener_;
  const host::FileDescriptor wake_;
  const std::string local_host_;
  std::atomic<bool> stop_{false};
  absl::Mutex mu_;
  std::optional<std::string> next_secret_ ABSL_GUARDED_BY(mu_);
  // Used only by the thread.
  StoreProtocol protocol_;
  std::map<uint64_t, host::FileDescriptor> sockets_;
  Acceptor acceptor_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(const StoreServerOptions& options) {
  if (options.port < 0 || options.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("store port: expected 0 to 65535, found ", options.port));
  }
  return PollingStoreServer::Start(options);
}

}  // namespace tandem::comm
