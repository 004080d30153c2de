// HostPolicy: the Host names that a server accepts, so that no web page can use it through the
// browser of somebody who can reach it.
//
// A page of another site sends its Origin (or Sec-Fetch-Site), and is refused. With DNS rebinding,
// a page whose name points at this server is same-origin, but Host carries that name: the server
// accepts only names that nobody can register in the public DNS, and the configured ones.
//   every listener     IP addresses, localhost, the name that it listens on, the allowed names
//   non-loopback       also names without a dot (compose, /etc/hosts, search domains), names in
//     listeners        .svc, .svc.cluster.local and .internal, and this machine's own names
#ifndef TANDEM_COMMON_HTTP_HOST_POLICY_H_
#define TANDEM_COMMON_HTTP_HOST_POLICY_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/message.h"
#include "common/net/host_port.h"

namespace tandem::http {

// Environment variable with allowed names, separated by commas.
inline constexpr char kAllowHostVariable[] = "TANDEM_HTTP_ALLOW_HOST";

// The names of kAllowHostVariable.
std::vector<std::string> AllowedHostsOfEnvironment();

// Immutable, so any thread may use it.
class HostPolicy {
 public:
  // `allowed`: names as clients write them; ".example.org" matches every name below it.
  // INVALID_ARGUMENT for one that is not a name.
  static absl::StatusOr<HostPolicy> Make(const net::HostPort& listen,
                                         const std::vector<std::string>& allowed);

  // 421 if the Host header names another server. Accepts a request without Host (HTTP/1.0): no
  // browser sends one.
  std::optional<Error> CheckHost(const Request& request) const;
  // 403 for a request that another origin's page makes a browser send, unless it follows a link.
  std::optional<Error> CheckOrigin(const Request& request) const;

 private:
  HostPolicy() = default;
  bool IsListed(absl::string_view host) const;
  bool IsOurs(absl::string_view host) const;

  bool loopback_ = true;
  std::set<std::string> names_;        // this server's own
  std::set<std::string> allowed_;      // from Make()'s `allowed`
  std::vector<std::string> suffixes_;  // ".example.org"
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_HOST_POLICY_H_
