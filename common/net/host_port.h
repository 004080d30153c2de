// HOST:PORT as users and peers write it, read in one way everywhere.
//
//   ASSIGN_OR_RETURN(const net::HostPort peer, net::ParseHostPort("trainer-0.tandem:5000"));
//   ASSIGN_OR_RETURN(const net::HostPort listen, net::ParseListenAddress("[::]:0"));
//   listen.host  // "::"
//   listen.port = 41234;  listen.ToString()  // "[::]:41234"
//
// A host is a name, an IPv4 address, or an IPv6 address, which stands in brackets, for without them
// nobody knows where the port begins. Names are not looked up.
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

  // With them, where the host has colons.
  std::string ToString() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Where somebody is: the port is from 1 to 65535. INVALID_ARGUMENT says what was expected, what was
// found, and, where that can be told, what to write instead.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// The same where the port may be left out.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text, int default_port);

// Where to listen: port 0 takes a free one.
absl::StatusOr<HostPort> ParseListenAddress(absl::string_view text);

// Whether it stands for every interface of a host: 0.0.0.0 or ::.
bool IsAnyAddress(const HostPort& address);

}  // namespace tandem::net

#endif  // TANDEM_COMMON_NET_HOST_PORT_H_
