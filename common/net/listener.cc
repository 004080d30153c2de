#include "common/net/listener.h"

#include <netinet/in.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "common/status/status_macros.h"

namespace tandem::net {
namespace {

absl::Status SystemError(int error) {
  const char* const reason = std::strerror(error);
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) return absl::NotFoundError(reason);
  return absl::UnavailableError(reason);
}

absl::StatusOr<Listener> ListenAt(const SocketAddress& address, int backlog, bool both_families) {
  Listener out;
  out.address = address;
  const int kind = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  out.fd = host::FileDescriptor(socket(address.bytes.ss_family, kind, 0));
  if (!out.fd.is_open()) return SystemError(errno);
  const int on = 1, off = 0;
  // A restarted process can listen while connections of its predecessor are in TIME_WAIT.
  setsockopt(out.fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Otherwise a socket for an IPv6 address might also take the IPv4 port, which has its own
  // listener.
  if (address.is_ipv6()) {
    const int& only = both_families ? off : on;
    setsockopt(out.fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  if (bind(out.fd.get(), address.get(), address.length) != 0 ||
      listen(out.fd.get(), backlog) != 0 ||
      getsockname(out.fd.get(), out.address.get(), &out.address.length) != 0) {
    return SystemError(errno);
  }
  return out;
}

}  // namespace

absl::StatusOr<Listener> Listen(const SocketAddress& address, int backlog) {
  return ListenAt(address, backlog, /*both_families=*/false);
}

absl::StatusOr<Listener> ListenEverywhere(int port, int backlog) {
  const auto listen_at = [&](sa_family_t family, socklen_t length) {
    SocketAddress any;  // all zeros stand for it, in both families
    any.bytes.ss_family = family;
    any.length = length;
    any.set_port(port);
    return ListenAt(any, backlog, /*both_families=*/true);
  };
  absl::StatusOr<Listener> listener = listen_at(AF_INET6, sizeof(sockaddr_in6));
  if (!absl::IsNotFound(listener.status())) return listener;
  listener = listen_at(AF_INET, sizeof(sockaddr_in));
  if (!absl::IsNotFound(listener.status())) return listener;
  return absl::UnavailableError(listener.status().message());
}

absl::StatusOr<std::vector<Listener>> ListenAtAll(const HostPort& address, int backlog) {
  std::vector<Listener> listeners;
  if (IsAnyAddress(address)) {
    ASSIGN_OR_RETURN(listeners.emplace_back(), ListenEverywhere(address.port, backlog));
    return listeners;
  }
  ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, Resolve(address));
  std::string why = "no address";
  for (SocketAddress& one : addresses) {
    if (!listeners.empty()) one.set_port(listeners.front().address.port());
    absl::StatusOr<Listener> listener = Listen(one, backlog);
    if (listener.ok()) {
      listeners.push_back(*std::move(listener));
    } else if (absl::IsNotFound(listener.status())) {
      why = std::string(listener.status().message());
    } else {
      return listener.status();
    }
  }
  if (listeners.empty()) return absl::UnavailableError(why);
  return listeners;
}

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace tandem::net
