// PeerEndpoint: who is at the other end of a connection, and the end of a connection that belongs
// to gRPC, which offers no way to end one.
#ifndef TANDEM_COMMON_RPC_PEER_ENDPOINT_H_
#define TANDEM_COMMON_RPC_PEER_ENDPOINT_H_

#include <netinet/in.h>

#include <cstring>
#include <optional>

#include "absl/strings/string_view.h"

namespace tandem::rpc {

// An address and a port. IPv4 is stored as ::ffff:a.b.c.d, as a socket of both families sees it.
struct PeerEndpoint {
  in6_addr address{};
  int port = 0;

  // Reads what gRPC calls a peer: ipv4:10.0.0.1:4711 or ipv6:%5B::1%5D:4711. Empty for others.
  static std::optional<PeerEndpoint> Parse(absl::string_view peer);
  // The other end of a connected socket; empty where `fd` is none.
  static std::optional<PeerEndpoint> Of(int fd);

  friend bool operator==(const PeerEndpoint& a, const PeerEndpoint& b) {
    return a.port == b.port && std::memcmp(&a.address, &b.address, sizeof(a.address)) == 0;
  }
  friend bool operator<(const PeerEndpoint& a, const PeerEndpoint& b) {
    const int order = std::memcmp(&a.address, &b.address, sizeof(a.address));
    return order != 0 ? order < 0 : a.port < b.port;
  }
};

// Ends the connection behind the descriptor number `fd` if it is one from `peer`, accepted on
// `port`, and drops what was received and nobody has read. The descriptor stays its owner's, who
// sees the connection closed. Returns false where the number is something else by now.
bool EndConnection(int fd, const PeerEndpoint& peer, int port);

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_PEER_ENDPOINT_H_
