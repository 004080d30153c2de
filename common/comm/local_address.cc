#include "common/comm/local_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/host/file_descriptor.h"
#include "common/net/socket_address.h"

namespace tandem::comm {

namespace {

// Both ends of the route to a host, as numeric addresses.
struct Route {
  std::string from, to;
};

absl::StatusOr<Route> RouteTowards(const std::string& host) {
  const auto addresses = net::Resolve({host, /*port=*/9});
  if (!addresses.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot resolve ", host, ": ", addresses.status().message()));
  }
  std::string why = "no address";
  for (const net::SocketAddress& address : *addresses) {
    const host::FileDescriptor fd(socket(address.bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.is_open()) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    char from[NI_MAXHOST];
    char to[NI_MAXHOST];
    // Connecting a datagram socket only chooses the route.
    const bool ok =
        connect(fd.get(), address.get(), address.length) == 0 &&
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, from, sizeof(from), nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        getnameinfo(address.get(), address.length, to, sizeof(to), nullptr, 0, NI_NUMERICHOST) == 0;
    if (!ok) why = std::strerror(errno);
    if (ok) return Route{from, to};
  }
  return absl::UnavailableError(absl::StrCat("no local address routes to ", host, ": ", why));
}

}  // namespace

absl::StatusOr<std::string> LocalAddressTowards(const std::string& host) {
  absl::StatusOr<Route> route = RouteTowards(host);
  if (!route.ok()) return route.status();
  return route->from;
}

bool IsThisHost(const std::string& host) {
  // A packet to an address of this host leaves from that address; one to 127.0.0.2 from 127.0.0.1.
  const absl::StatusOr<Route> route = RouteTowards(host);
  return route.ok() && (route->from == route->to || absl::StartsWith(route->from, "127."));
}

}  // namespace tandem::comm
