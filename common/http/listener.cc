#include "common/http/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace tandem::http {
namespace {

// What the system keeps for a client that does not read; it would grow to several megabytes.
constexpr int kSendBufferBytes = 256 << 10;
constexpr int kBacklog = 4096;  // the system cuts it down to net.core.somaxconn

}  // namespace

absl::StatusOr<ListeningSocket> Listen(const net::HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &list);
  if (failure != 0) return absl::UnavailableError(gai_strerror(failure));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, freeaddrinfo);
  const char* why = "no address";
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
      why = std::strerror(errno);
      continue;
    }
    const int on = 1;
    const int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
      return ListeningSocket{fd, at->ai_family == AF_INET6};
    }
    why = std::strerror(errno);
    close(fd);
  }
  return absl::UnavailableError(why);
}

int PortOf(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

Accepted Accept(int listener) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  Accepted out;
  out.fd =
      accept4(listener, reinterpret_cast<sockaddr*>(&storage), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (out.fd < 0) return out;
  const int on = 1;
  setsockopt(out.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(out.fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
  if (storage.ss_family != AF_INET6) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    out.client.assign(reinterpret_cast<const char*>(&v4), sizeof(v4));
    return out;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(&v6);
  // An IPv4 client of a socket for both.
  out.client = IN6_IS_ADDR_V4MAPPED(&v6) ? std::string(bytes + 12, 4) : std::string(bytes, 8);
  return out;
}

SpareDescriptors::~SpareDescriptors() {
  while (Release()) {
  }
}

bool SpareDescriptors::Release() {
  if (fds_.empty()) return false;
  close(fds_.back());
  fds_.pop_back();
  return true;
}

void SpareDescriptors::Refill() {
  while (fds_.size() < count_) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    fds_.push_back(fd);
  }
}

}  // namespace tandem::http
