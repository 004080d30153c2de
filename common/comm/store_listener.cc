#include "common/comm/store_listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/comm/acceptor.h"
#include "common/comm/address_name.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"

namespace tandem::comm {
namespace {

constexpr absl::Duration kResolvePause = absl::Milliseconds(200);

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t length = 0;
};

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, absl::Time deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  int error = 0;
  while ((error = getaddrinfo(host.c_str(), nullptr, &hints, &found)) != 0) {
    if (absl::Now() + kResolvePause >= deadline) {
      return absl::UnavailableError(
          absl::StrCat("store: cannot resolve ", host, ": ", gai_strerror(error)));
    }
    absl::SleepFor(kResolvePause);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.bytes, a->ai_addr, a->ai_addrlen);
    address.length = a->ai_addrlen;
  }
  return addresses;
}

bool IsLoopback(const SocketAddress& address) {
  if (address.bytes.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.bytes);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address.bytes);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

bool IsNumber(const std::string& host) {
  in6_addr unused;
  return inet_pton(AF_INET, host.c_str(), &unused) == 1 ||
         inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &unused) == 1;
}

// The port is at the same place in both kinds of address.
in_port_t& PortOf(SocketAddress& address) {
  return reinterpret_cast<sockaddr_in&>(address.bytes).sin_port;
}

// Not open, without an error, where the address is not this host's.
absl::StatusOr<FileDescriptor> ListenAt(SocketAddress address, bool both_families, int& port) {
  PortOf(address) = htons(static_cast<uint16_t>(port));
  const auto fail = [&](absl::string_view what) {
    return absl::UnavailableError(absl::StrCat("store: cannot ", what, " ",
                                               AddressName(address.bytes, address.length), ": ",
                                               std::strerror(errno)));
  };
  FileDescriptor fd(socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    if (errno == EAFNOSUPPORT) return FileDescriptor();
    return fail("open a socket for");
  }
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.bytes.ss_family == AF_INET6) {
    const int& only = both_families ? off : on;
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof(only));
  }
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address.bytes), address.length) != 0) {
    if (errno == EADDRNOTAVAIL) return FileDescriptor();
    return fail("bind");
  }
  if (listen(fd.get(), kListenBacklog) != 0) return fail("listen at");
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address.bytes), &address.length) != 0) {
    return fail("read the name of");
  }
  port = ntohs(PortOf(address));
  return fd;
}

// One socket for IPv6 and IPv4, or IPv4 alone where the host has no IPv6.
absl::StatusOr<StoreListener> ListenEverywhere(int port) {
  StoreListener out;
  out.port = port;
  out.everywhere = true;
  for (const int family : {AF_INET6, AF_INET}) {
    SocketAddress any;
    any.bytes.ss_family = static_cast<sa_family_t>(family);
    any.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    ASSIGN_OR_RETURN(FileDescriptor fd, ListenAt(any, /*both_families=*/true, out.port));
    if (!fd.is_open()) continue;
    out.sockets.push_back(std::move(fd));
    return out;
  }
  return absl::UnavailableError(absl::StrCat("store: no address to listen at, port ", port));
}

}  // namespace

absl::StatusOr<StoreListener> ListenForStore(const std::string& host, int port,
                                             absl::Time deadline) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses, Resolve(host, deadline));
  const bool means_itself =
      IsNumber(host) || host == "localhost" || absl::EndsWith(host, ".localhost");
  StoreListener out;
  out.port = port;
  if (means_itself || !std::all_of(addresses.begin(), addresses.end(), IsLoopback)) {
    for (const SocketAddress& address : addresses) {
      ASSIGN_OR_RETURN(FileDescriptor fd, ListenAt(address, /*both_families=*/false, out.port));
      if (fd.is_open()) out.sockets.push_back(std::move(fd));
    }
  }
  if (!out.sockets.empty()) return out;
  telemetry::LogWarning("the rendezvous store listens at every interface: none has its address",
                        {{"address", host}, {"port", port}});
  return ListenEverywhere(port);
}

}  // namespace tandem::comm
