#include "common/net/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace tandem::net {

bool SocketAddress::is_loopback() const {
  if (is_ipv6()) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(bytes).sin6_addr) != 0;
  }
  return ntohl(reinterpret_cast<const sockaddr_in&>(bytes).sin_addr.s_addr) >> 24 == 127;
}

// The port is at the same place in both kinds of address.
int SocketAddress::port() const {
  return ntohs(reinterpret_cast<const sockaddr_in&>(bytes).sin_port);
}

void SocketAddress::set_port(int port) {
  reinterpret_cast<sockaddr_in&>(bytes).sin_port = htons(static_cast<uint16_t>(port));
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& one = addresses.emplace_back();
    std::memcpy(&one.bytes, at->ai_addr, at->ai_addrlen);
    one.length = at->ai_addrlen;
    one.set_port(address.port);
  }
  return addresses;
}

bool IsNumber(const HostPort& address) {
  in6_addr unused;
  return inet_pton(AF_INET, address.host.c_str(), &unused) == 1 ||
         inet_pton(AF_INET6, address.host.substr(0, address.host.find('%')).c_str(), &unused) == 1;
}

}  // namespace tandem::net
