// PeerEndpoint: the remote end of a connection. EndConnection() ends a connection that gRPC owns;
// gRPC itself offers no way to do so.
#ifndef TANDEM_COMMON_RPC_PEER_ENDPOINT_H_
#define TANDEM_COMMON_RPC_PEER_ENDPOINT_H_

#include <netinet/in.h>

#include <cstring>
#include <optional>

#include "absl/strings/string_view.h"

namespace tandem::rpc {

// An address and a port. IPv4 is stored as ::ffff:a.b.c.d, as a dual-stack socket sees it.
struct PeerEndpoint {
  in6_addr address{};
  int port = 0;

  // Parses gRPC's peer strings: ipv4:10.0.0.1:4711 or ipv6:%5B::1%5D:4711. Empty for others.
  static std::optional<PeerEndpoint> Parse(absl::string_view peer);
  // The remote end of a connected socket; empty if `fd` is not one.
  static std::optional<PeerEndpoint> Of(int fd);

  friend bool operator==(const PeerEndpoint& a, const PeerEndpoint& b) {
    return a.port == b.port && std::memcmp(&a.address, &b.address, sizeof(a.address)) == 0;
  }
  friend bool operator<(const PeerEndpoint& a, const PeerEndpoint& b) {
    const int order = std::memcmp(&a.address, &b.address, sizeof(a.address));
    return order != 0 ? order < 0 : a.port < b.port;
  }
};

// Shuts down the connection behind the descriptor number `fd` if it is from `peer` and was accepted
// on `port`, and drops received bytes that nobody has read. The owner keeps the descriptor and sees
// the connection closed. Returns false if the number now belongs to something else.
bool EndConnection(int fd, const PeerEndpoint& peer, int port);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_PEER_ENDPOINT_H_
