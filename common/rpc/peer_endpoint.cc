#include "common/rpc/peer_endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/host/file_descriptor.h"

namespace tandem::rpc {
namespace {

in6_addr Mapped(const in_addr& address) {
  in6_addr out{};
  out.s6_addr[10] = out.s6_addr[11] = 0xff;
  std::memcpy(&out.s6_addr[12], &address, sizeof(address));
  return out;
}

std::optional<PeerEndpoint> ToEndpoint(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    return PeerEndpoint{Mapped(v4.sin_addr), ntohs(v4.sin_port)};
  }
  if (from.ss_family != AF_INET6) return std::nullopt;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
  return PeerEndpoint{v6.sin6_addr, ntohs(v6.sin6_port)};
}

template <typename GetName>
std::optional<PeerEndpoint> NameOf(GetName get_name, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return ToEndpoint(address);
}

}  // namespace

std::optional<PeerEndpoint> PeerEndpoint::Parse(absl::string_view peer) {
  const bool v4 = absl::ConsumePrefix(&peer, "ipv4:");
  if (!v4 && !absl::ConsumePrefix(&peer, "ipv6:")) return std::nullopt;
  const std::string text = absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}});
  const size_t colon = text.rfind(':');
  PeerEndpoint out;
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(colon + 1), &out.port)) {
    return std::nullopt;
  }
  std::string host = text.substr(0, colon);
  if (v4) {
    in_addr address;
    if (inet_pton(AF_INET, host.c_str(), &address) != 1) return std::nullopt;
    out.address = Mapped(address);
    return out;
  }
  host = host.substr(0, host.find('%'));  // the interface of a link-local address
  host.erase(std::remove_if(host.begin(), host.end(), [](char c) { return c == '[' || c == ']'; }),
             host.end());
  if (inet_pton(AF_INET6, host.c_str(), &out.address) != 1) return std::nullopt;
  return out;
}

std::optional<PeerEndpoint> PeerEndpoint::Of(int fd) { return NameOf(getpeername, fd); }

bool EndConnection(int fd, const PeerEndpoint& peer, int port) {
  if (PeerEndpoint::Of(fd) != peer) return false;
  // Check again through a descriptor of our own: the number may belong to another file by now.
  const host::FileDescriptor own(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  const std::optional<PeerEndpoint> here = NameOf(getsockname, own.get());
  if (!own.is_open() || PeerEndpoint::Of(own.get()) != peer || !here.has_value() ||
      here->port != port) {
    return false;
  }
  // Disconnects with a reset; unlike shutdown(2) it drops received bytes.
  sockaddr unspecified{};
  unspecified.sa_family = AF_UNSPEC;
  return connect(own.get(), &unspecified, sizeof(unspecified)) == 0;
}

}  // namespace tandem::rpc
