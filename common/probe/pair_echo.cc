#include "common/probe/pair_echo.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/net/listener.h"
#include "common/status/status_macros.h"

namespace tandem::probe {
namespace {

constexpr int kBacklog = 128;

absl::Status Failed(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

EchoGreeting MakeEchoGreeting(const std::string& secret, const std::string& nonce, int from,
                              int to) {
  EchoGreeting greeting;
  const std::string proof =
      security::Hmac(secret, {"echo", nonce, absl::StrCat(from), absl::StrCat(to)});
  std::copy(proof.begin(), proof.end(), greeting.proof.begin());
  return greeting;
}

absl::StatusOr<std::unique_ptr<PairEcho>> PairEcho::Start(const std::string& host,
                                                          const std::string& secret, int rank,
                                                          int size) {
  auto out = absl::WrapUnique(new PairEcho(secret, rank, size));
  out->nonce_ = security::DrawSecret();
  const std::string what = absl::StrCat("listening on ", host);
  const absl::StatusOr<std::vector<net::SocketAddress>> addresses = net::Resolve({host, 0});
  RETURN_IF_ERROR(addresses.status()) << what;
  absl::StatusOr<net::Listener> listener = net::Listen(addresses->front(), kBacklog);
  RETURN_IF_ERROR(listener.status()) << what;
  out->listener_ = std::move(listener->fd);
  out->port_ = listener->address.port();
  out->stop_ = host::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out->stop_.is_open()) return Failed(what);
  out->thread_ = std::thread([echo = out.get()] { echo->Run(); });
  return out;
}

PairEcho::~PairEcho() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  (void)!write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void PairEcho::Run() {
  std::vector<Guest> guests;
  while (true) {
    std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    for (const Guest& guest : guests) entries.push_back({guest.fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    std::vector<Guest> remaining;
    for (size_t i = 0; i < guests.size(); ++i) {
      if (entries[i + 2].revents == 0 || Attend(guests[i])) {
        remaining.push_back(std::move(guests[i]));
      }
    }
    guests = std::move(remaining);
    if (entries[1].revents == 0) continue;
    host::FileDescriptor fd(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // Twice the number of ranks: a disconnected rank may reconnect.
    if (!fd.is_open() || guests.size() >= 2 * static_cast<size_t>(size_)) continue;
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    guests.push_back({std::move(fd), "", false});
  }
}

bool PairEcho::Attend(Guest& guest) const {
  std::array<char, 1024> bytes;
  const size_t most = guest.known ? bytes.size() : sizeof(EchoGreeting) - guest.heard.size();
  const ssize_t n = recv(guest.fd.get(), bytes.data(), most, 0);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  // A message is far smaller than a socket's buffer.
  if (guest.known) return send(guest.fd.get(), bytes.data(), n, MSG_NOSIGNAL) == n;
  guest.heard.append(bytes.data(), n);
  if (guest.heard.size() < sizeof(EchoGreeting)) return true;
  for (int from = 0; from < size_ && !guest.known; ++from) {
    const EchoGreeting expected = MakeEchoGreeting(secret_, nonce_, from, rank_);
    guest.known = security::AreEqual(guest.heard, {expected.proof.data(), expected.proof.size()});
  }
  return guest.known;
}

}  // namespace tandem::probe
