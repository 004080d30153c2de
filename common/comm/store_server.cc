// The rendezvous store: one thread over poll(), a map, and the queries of store_wire.h.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/comm/address_name.h"
#include "common/comm/process_group.h"
#include "common/comm/store_wire.h"
#include "common/security/secret.h"
#include "common/status/status_macros.h"
#include "common/telemetry/refusals.h"

namespace tandem::comm {
namespace {

// A stranger has so long, so many bytes and so many fellows.
constexpr absl::Duration kProofTime = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Seconds(1);
constexpr size_t kMaxStrangerBytes = 512;
constexpr int kMostStrangers = 1024;

// A connection's bytes, and how far they have been understood.
struct Peer {
  int fd = -1;
  std::string name;  // its address, taken while it was certain to be there
  bool validated = false;
  bool proven = false;     // that it knows the secret, or there is none
  std::string nonces;      // the client's and ours, once it has asked for a challenge
  absl::Time prove_until;  // of one that has not proven it
  bool broken = false;
  std::string in;
  std::string out;
  std::vector<std::string> waits_for;  // keys that are not there yet
};

// Takes a query's arguments from the front of a peer's bytes; remembers whether they were all
// there.
class Reader {
 public:
  explicit Reader(absl::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Integer() {
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + used_, sizeof(T));
    used_ += sizeof(T);
    return value;
  }
  std::string String() {
    const auto size = Integer<uint64_t>();
    if (size > kMaxStoreString) wrong_ = true;
    if (wrong_ || !Has(size)) return "";
    std::string text(bytes_.substr(used_, size));
    used_ += size;
    return text;
  }
  std::string Bytes(size_t size) {
    if (!Has(size)) return "";
    std::string bytes(bytes_.substr(used_, size));
    used_ += size;
    return bytes;
  }
  void Wrong() { wrong_ = true; }

  bool complete() const { return complete_; }
  bool wrong() const { return wrong_; }
  size_t used() const { return used_; }

 private:
  bool Has(uint64_t size) {
    if (complete_ && bytes_.size() - used_ < size) complete_ = false;
    return complete_;
  }

  const absl::string_view bytes_;
  size_t used_ = 0;
  bool complete_ = true;
  bool wrong_ = false;
};

class PollingStoreServer : public StoreServer {
 public:
  static absl::StatusOr<std::unique_ptr<StoreServer>> Start(int port, std::string secret) {
    const auto fail = [port](absl::string_view what, int fd) {
      const absl::Status status = absl::UnavailableError(
          absl::StrCat("store: cannot ", what, " port ", port, ": ", std::strerror(errno)));
      if (fd >= 0) close(fd);
      return status;
    };
    // One socket for IPv6 and IPv4, or IPv4 alone where the host has no IPv6.
    sockaddr_storage address{};
    socklen_t length = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1, off = 0;
    if (fd >= 0) {
      auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
      v6.sin6_family = AF_INET6;
      v6.sin6_addr = in6addr_any;
      v6.sin6_port = htons(static_cast<uint16_t>(port));
      length = sizeof(v6);
      setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    } else {
      fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      auto& v4 = reinterpret_cast<sockaddr_in&>(address);
      v4.sin_family = AF_INET;
      v4.sin_addr.s_addr = htonl(INADDR_ANY);
      v4.sin_port = htons(static_cast<uint16_t>(port));
      length = sizeof(v4);
    }
    if (fd < 0) return fail("open a socket for", fd);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0) return fail("bind", fd);
    if (listen(fd, 1024) != 0) return fail("listen on", fd);
    length = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      return fail("read the name of", fd);
    // The port is at the same place in both kinds of address.
    const int bound = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
    const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) return fail("make a wake-up for", fd);
    return absl::WrapUnique<StoreServer>(
        new PollingStoreServer(fd, wake, bound, std::move(secret)));
  }

  ~PollingStoreServer() override {
    stop_ = true;
    Wake();
    thread_.join();
    for (const Peer& peer : peers_) close(peer.fd);
    close(listen_fd_);
    close(wake_fd_);
  }

  int port() const override { return port_; }

  void SetSecret(std::string secret) override {
    {
      absl::MutexLock lock(&mu_);
      next_secret_ = std::move(secret);
    }
    Wake();
  }

 private:
  PollingStoreServer(int listen_fd, int wake_fd, int port, std::string secret)
      : listen_fd_(listen_fd),
        wake_fd_(wake_fd),
        port_(port),
        secret_(std::move(secret)),
        thread_([this] { Run(); }) {}

  void Wake() {
    const uint64_t one = 1;
    while (write(wake_fd_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  // Takes over a secret that was set, and closes who has proven another.
  void AdoptSecret() {
    uint64_t times = 0;
    while (read(wake_fd_, &times, sizeof(times)) < 0 && errno == EINTR) {
    }
    absl::MutexLock lock(&mu_);
    if (!next_secret_.has_value()) return;
    secret_ = *std::exchange(next_secret_, std::nullopt);
    // One that has proven nothing yet may know the new one already. What the others had said
    // before counts.
    for (Peer& peer : peers_) {
      if (!peer.proven) continue;
      Serve(peer);
      peer.broken = true;
    }
  }

  void Run() {
    while (true) {
      std::vector<pollfd> entries = {{wake_fd_, POLLIN, 0}, {listen_fd_, POLLIN, 0}};
      for (const Peer& peer : peers_) {
        entries.push_back(
            {peer.fd, static_cast<short>(peer.out.empty() ? POLLIN : POLLIN | POLLOUT), 0});
      }
      const int timeout =
          num_strangers_ > 0 ? static_cast<int>(absl::ToInt64Milliseconds(kLook)) : -1;
      if (poll(entries.data(), entries.size(), timeout) < 0) continue;  // EINTR
      if (stop_) return;
      if (entries[0].revents != 0) AdoptSecret();
      size_t index = 2;
      for (auto peer = peers_.begin(); peer != peers_.end();) {
        if (entries[index++].revents != 0 && !peer->broken) Serve(*peer);
        if (!peer->proven && absl::Now() > peer->prove_until)
          Refuse(*peer, "it proved nothing in time");
        if (peer->broken) {
          if (!peer->proven) --num_strangers_;
          close(peer->fd);
          peer = peers_.erase(peer);
        } else {
          ++peer;
        }
      }
      if (entries[1].revents != 0) Accept();
    }
  }

  void Accept() {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    const int fd = accept4(listen_fd_, reinterpret_cast<sockaddr*>(&address), &length,
                           SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    Peer& peer = peers_.emplace_back();
    peer.fd = fd;
    peer.name = AddressName(address, length);
    ++num_strangers_;
    if (secret_.empty()) {
      Welcome(peer);
    } else if (num_strangers_ > kMostStrangers) {
      Refuse(peer, "too many others have proven nothing yet");
    }
    peer.prove_until = absl::Now() + kProofTime;
  }

  void Welcome(Peer& peer) {
    if (!peer.proven) --num_strangers_;
    peer.proven = true;
  }

  void Refuse(Peer& peer, absl::string_view why) {
    if (!peer.broken) {
      telemetry::CountRefusal(telemetry::RefusedAt::kRendezvous, peer.name, why);
    }
    peer.broken = true;
  }

  void Serve(Peer& peer) {
    char buffer[16384];
    while (true) {
      const ssize_t n = recv(peer.fd, buffer, sizeof(buffer), 0);
      if (n > 0) {
        peer.in.append(buffer, static_cast<size_t>(n));
        if (!peer.proven && peer.in.size() > kMaxStrangerBytes) {
          Refuse(peer, "it proved nothing and sent much");
          break;
        }
        if (n == sizeof(buffer)) continue;
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        peer.broken = true;
      }
      break;
    }
    size_t used = 0;
    while (!peer.broken && used < peer.in.size()) {
      Reader reader(absl::string_view(peer.in).substr(used));
      Answer(reader, peer);
      if (reader.wrong() && !peer.proven) Refuse(peer, "it does not speak as a member");
      if (reader.wrong()) peer.broken = true;
      if (!reader.complete()) break;
      used += reader.used();
    }
    peer.in.erase(0, used);
    while (!peer.broken && !peer.out.empty()) {
      const ssize_t n = send(peer.fd, peer.out.data(), peer.out.size(), MSG_NOSIGNAL);
      if (n > 0)
        peer.out.erase(0, static_cast<size_t>(n));
      else if (errno == EAGAIN || errno == EINTR)
        break;
      else
        peer.broken = true;
    }
  }

  // Who waits for it and for nothing else is answered in the next round of poll().
  void Set(const std::string& key, std::string value) {
    const bool is_new = values_.insert_or_assign(key, std::move(value)).second;
    if (!is_new) return;
    for (Peer& peer : peers_) {
      if (peer.waits_for.empty()) continue;
      std::erase(peer.waits_for, key);
      if (peer.waits_for.empty()) AppendInteger(peer.out, kReady);
    }
  }

  // Answers one query, if all of it is there.
  void Answer(Reader& reader, Peer& peer) {
    const auto query = reader.Integer<StoreQuery>();
    if (!peer.validated && query != StoreQuery::kValidate) return reader.Wrong();
    if (!peer.proven && reader.complete() && query != StoreQuery::kValidate &&
        query != StoreQuery::kChallenge && query != StoreQuery::kProve) {
      return Refuse(peer, "it asked without a proof of the group's secret");
    }
    switch (query) {
      case StoreQuery::kValidate:
        if (reader.Integer<uint32_t>() != kStoreMagic && reader.complete()) return reader.Wrong();
        peer.validated = reader.complete();
        return;
      case StoreQuery::kPing: {
        const auto nonce = reader.Integer<uint32_t>();
        if (reader.complete()) AppendInteger(peer.out, nonce);
        return;
      }
      case StoreQuery::kChallenge: {
        std::string nonce = reader.Bytes(kStoreProofBytes);
        if (!reader.complete()) return;
        const std::string own = security::DrawSecret(kStoreProofBytes);
        peer.out += own;
        peer.nonces = std::move(nonce) + own;
        return;
      }
      case StoreQuery::kProve: {
        const std::string proof = reader.Bytes(kStoreProofBytes);
        if (reader.complete()) Judge(peer, proof);
        return;
      }
      case StoreQuery::kSet: {
        const std::string key = reader.String();
        std::string value = reader.String();
        if (reader.complete() && !reader.wrong()) Set(key, std::move(value));
        return;
      }
      case StoreQuery::kGet: {
        const auto it = values_.find(reader.String());
        if (!reader.complete()) return;
        if (it == values_.end()) return reader.Wrong();  // to be waited for first
        return AppendString(peer.out, it->second);
      }
      case StoreQuery::kAdd: {
        const std::string key = reader.String();
        const auto delta = reader.Integer<int64_t>();
        if (!reader.complete() || reader.wrong()) return;
        int64_t value = 0;
        if (const auto it = values_.find(key);
            it != values_.end() && !absl::SimpleAtoi(it->second, &value)) {
          return reader.Wrong();
        }
        value = static_cast<int64_t>(static_cast<uint64_t>(value) + static_cast<uint64_t>(delta));
        Set(key, absl::StrCat(value));
        return AppendInteger(peer.out, value);
      }
      case StoreQuery::kCheck: {
        const auto count = reader.Integer<uint64_t>();
        if (count > kMaxStoreKeys) return reader.Wrong();
        bool all = true;
        for (uint64_t i = 0; i < count && reader.complete() && !reader.wrong(); ++i) {
          all = values_.count(reader.String()) > 0 && all;
        }
        if (reader.complete()) AppendInteger(peer.out, all ? kReady : kNotReady);
        return;
      }
      case StoreQuery::kWait: {
        const auto count = reader.Integer<uint64_t>();
        if (count > kMaxStoreKeys || !peer.waits_for.empty()) return reader.Wrong();
        std::vector<std::string> missing;
        for (uint64_t i = 0; i < count && reader.complete() && !reader.wrong(); ++i) {
          std::string key = reader.String();
          if (values_.count(key) == 0) missing.push_back(std::move(key));
        }
        if (!reader.complete() || reader.wrong()) return;
        if (missing.empty()) return AppendInteger(peer.out, kReady);
        peer.waits_for = std::move(missing);
        return;
      }
      case StoreQuery::kCancelWait:
        peer.waits_for.clear();
        return AppendInteger(peer.out, kWaitCancelled);
    }
    reader.Wrong();
  }

  // A proof is good for one challenge.
  void Judge(Peer& peer, const std::string& proof) {
    const std::string nonces = std::exchange(peer.nonces, "");
    const auto theirs = absl::string_view(nonces).substr(0, kStoreProofBytes);
    const auto ours = nonces.empty() ? "" : absl::string_view(nonces).substr(kStoreProofBytes);
    if (nonces.empty() || secret_.empty() ||
        !security::AreEqual(proof, security::Hmac(secret_, {kStoreClient, theirs, ours}))) {
      return Refuse(peer, "it does not know the group's secret");
    }
    peer.out += security::Hmac(secret_, {kStoreServer, theirs, ours});
    Welcome(peer);
  }

  const int listen_fd_;
  const int wake_fd_;
  const int port_;
  std::atomic<bool> stop_{false};
  absl::Mutex mu_;
  std::optional<std::string> next_secret_ ABSL_GUARDED_BY(mu_);
  std::string secret_;                         // of the thread
  int num_strangers_ = 0;                      // of the thread
  std::list<Peer> peers_;                      // of the thread
  std::map<std::string, std::string> values_;  // of the thread
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StoreServer>> StoreServer::Start(int port, std::string secret) {
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("store port: expected 0 to 65535, found ", port));
  }
  return PollingStoreServer::Start(port, std::move(secret));
}

}  // namespace tandem::comm
