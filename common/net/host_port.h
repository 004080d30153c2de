// HostPort: the one parser of HOST:PORT text from users and peers.
//
//   ASSIGN_OR_RETURN(const net::HostPort peer, net::ParseHostPort("trainer-0.tandem:5000"));
//   ASSIGN_OR_RETURN(const net::HostPort listen, net::ParseListenAddress("[::]:0"));
//   const std::string& host = listen.host;       // "::"
//   const std::string text = listen.ToString();  // "[::]:0"
//
// A host is a name, an IPv4 address, or an IPv6 address in brackets; without brackets it is
// ambiguous where the port begins. Nothing here looks up names.
#ifndef TANDEM_COMMON_NET_HOST_PORT_H_
#define TANDEM_COMMON_NET_HOST_PORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::net {

inline constexpr int kMaxPort = 65535;

struct HostPort {
  std::string host;  // without the brackets of IPv6
  int port = 0;

  // Adds brackets when the host contains colons.
  std::string ToString() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Parses an address to connect to; the port is 1 to 65535. INVALID_ARGUMENT says what was expected,
// what was found and, where known, what to write instead.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Like the above, but the port is optional.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, int default_port);

// Parses an address to listen on; port 0 means any free port.
absl::StatusOr<HostPort> ParseListenAddress(absl::string_view text);

// True for 0.0.0.0 and ::, which stand for every interface of a host.
bool IsAnyAddress(const HostPort& address);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_HOST_PORT_H_
