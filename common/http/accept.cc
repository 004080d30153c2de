#include "common/http/accept.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tandem::http {
namespace {

// Send buffer per client; by default the system grows it to several megabytes for a slow reader.
constexpr int kSendBufferBytes = 256 << 10;
}  // namespace

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
