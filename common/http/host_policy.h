// HostPolicy: which names a server answers to, so that no web page can use it through the browser
// of somebody who reaches it.
//
// A page of another site sends its Origin (or Sec-Fetch-Site), and is refused. A page whose own
// name was pointed at this server (DNS rebinding) is of the same origin, but its name stands in
// Host: a server answers only to names that nobody can register in the public DNS, and to those it
// was told.
//   every listener     IP addresses, localhost, the name that it listens on, the allowed names
//   not on a loopback  besides, names without a dot (compose, /etc/hosts, search domains), names
//     address          in .svc, .svc.cluster.local and .internal, and this machine's own names
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
  // `allowed` are names as clients write them; ".example.org" stands for all below it.
  // INVALID_ARGUMENT for one that is no name.
  static absl::StatusOr<HostPolicy> Make(const net::HostPort& listen,
                                         const std::vector<std::string>& allowed);

  // 421 where the Host header names another server. Without one (HTTP/1.0) there is no browser.
  std::optional<Error> CheckHost(const Request& request) const;
  // 403 for what a page of another origin makes a browser send, except that it is opened by a link.
  std::optional<Error> CheckOrigin(const Request& request) const;

 private:
  HostPolicy() = default;
  bool IsListed(absl::string_view host) const;
  bool IsOurs(absl::string_view host) const;

  bool loopback_ = true;
  std::set<std::string> names_;        // of this server
  std::set<std::string> allowed_;      // by the options
  std::vector<std::string> suffixes_;  // ".example.org"
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_HOST_POLICY_H_
