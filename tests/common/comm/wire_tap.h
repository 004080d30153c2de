// WireTap: somebody between rank 1 of a group and the others' network: he passes on what the store
// says, names his own address as rank 0's, and sees and changes what goes over the link.
#ifndef TANDEM_TESTS_COMMON_COMM_WIRE_TAP_H_
#define TANDEM_TESTS_COMMON_COMM_WIRE_TAP_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/comm/process_group.h"
#include "common/host/file_descriptor.h"

namespace tandem::comm {

// Rank 0 uses store_of(0), rank 1 store_of(1).
class WireTap {
 public:
  struct Options {
    std::string prefix = "test";
    std::vector<std::string> lanes = {""};  // of the group's links: "", or "/collectives" and so on
    // What rank 0 hears that rank 1 says of itself; null: what it says.
    std::function<std::string(const std::string&)> rewrite_place;
    // Number of the byte from rank 1 to rank 0, over a lane's link, of which one bit is changed.
    int64_t flip_at = -1;
  };

  explicit WireTap(Options options) : options_(std::move(options)) {
    for (auto& store : stores_) store = *StoreServer::Start();
    threads_.emplace_back([this] { CopyPlaces(); });
    for (const std::string& lane : options_.lanes) {
      threads_.emplace_back([this, lane] { Relay(lane); });
    }
  }
  ~WireTap() {
    stop_.Notify();
    for (std::thread& thread : threads_) thread.join();
  }

  int port_of(int rank) const { return stores_[rank]->port(); }
  // All that has gone over the links, in either direction.
  std::string seen() const {
    absl::MutexLock lock(&mu_);
    return seen_;
  }

 private:
  std::unique_ptr<StoreClient> Client(int rank, const std::string& lane) const {
    auto client =
        StoreClient::Connect({"127.0.0.1", port_of(rank), absl::StrCat(options_.prefix, lane), ""},
                             absl::Seconds(30), &stop_);
    return client.ok() ? *std::move(client) : nullptr;
  }

  // Empty once it is over.
  std::string Wait(StoreClient& client, const std::string& key) const {
    const auto value = client.Get(key, absl::Seconds(60), &stop_);
    return value.ok() ? *value : "";
  }

  void CopyPlaces() const {
    const auto zero = Client(0, ""), one = Client(1, "");
    if (zero == nullptr || one == nullptr) return;
    std::string place = Wait(*one, "place/1");
    if (options_.rewrite_place != nullptr) place = options_.rewrite_place(place);
    if (!place.empty()) zero->Set("place/1", place).IgnoreError();
    place = Wait(*zero, "place/0");
    if (!place.empty()) one->Set("place/0", place).IgnoreError();
  }

  void Relay(const std::string& lane) {
    const auto zero = Client(0, lane), one = Client(1, lane);
    if (zero == nullptr || one == nullptr) return;
    const std::vector<std::string> entry = absl::StrSplit(Wait(*zero, "links/0"), ' ');
    if (entry.size() != 2) return;
    const std::string target = absl::HexStringToBytes(entry[0]);
    const host::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(own);
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&own), size) != 0 ||
        listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) {
      return;
    }
    const std::string address(reinterpret_cast<const char*>(&own), size);
    one->Set("links/0", absl::StrCat(absl::BytesToHexString(address), " ", entry[1])).IgnoreError();
    if (!Ready(listener.get(), -1)) return;
    const host::FileDescriptor from_one(accept(listener.get(), nullptr, nullptr));
    const host::FileDescriptor to_zero(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(to_zero.get(), reinterpret_cast<const sockaddr*>(target.data()),
                static_cast<socklen_t>(target.size())) != 0) {
      return;
    }
    Pump(from_one.get(), to_zero.get());
  }

  // Until one of them can be read; false once it is over.
  bool Ready(int a, int b) const {
    while (!stop_.HasBeenNotified()) {
      std::array<pollfd, 2> entries = {{{a, POLLIN, 0}, {b, POLLIN, 0}}};
      if (poll(entries.data(), entries.size(), 20) > 0) return true;
    }
    return false;
  }

  void Pump(int one, int zero) {
    int64_t passed = 0;
    std::vector<char> bytes(256 << 10);
    while (Ready(one, zero)) {
      for (const auto& [from, to] : {std::pair(one, zero), std::pair(zero, one)}) {
        const ssize_t n = recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) continue;
        if (n <= 0) return;
        if (from == one) {
          const int64_t at = options_.flip_at - passed;
          if (at >= 0 && at < n) bytes[at] ^= 1;
          passed += n;
        }
        {
          absl::MutexLock lock(&mu_);
          seen_.append(bytes.data(), n);
        }
        for (ssize_t sent = 0; sent < n;) {
          const ssize_t m = send(to, bytes.data() + sent, n - sent, MSG_NOSIGNAL);
          if (m <= 0) return;
          sent += m;
        }
      }
    }
  }

  const Options options_;
  std::array<std::unique_ptr<StoreServer>, 2> stores_;
  absl::Notification stop_;
  mutable absl::Mutex mu_;
  std::string seen_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace tandem::comm

#endif  // TANDEM_TESTS_COMMON_COMM_WIRE_TAP_H_
