#include "common/comm/local_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tandem::comm {

namespace {

// Both ends of the route to a host, as numbers.
struct Route {
  std::string from, to;
};

absl::StatusOr<Route> RouteTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve ", host, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    char from[NI_MAXHOST];
    char to[NI_MAXHOST];
    // Connecting a datagram socket only chooses the route.
    const bool ok =
        connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&local), length, from, sizeof(from), nullptr, 0,
                    NI_NUMERICHOST) == 0 &&
        getnameinfo(a->ai_addr, a->ai_addrlen, to, sizeof(to), nullptr, 0, NI_NUMERICHOST) == 0;
    if (!ok) why = std::strerror(errno);
    close(fd);
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
