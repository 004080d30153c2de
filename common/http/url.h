// Url: an http or https address to send requests to.
//
//   ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl("https://api.openai.com/v1"));
//   const std::string& host = url.server.host;  // "api.openai.com", port 443
//   const std::string& path = url.path;         // "/v1"
#ifndef TANDEM_COMMON_HTTP_URL_H_
#define TANDEM_COMMON_HTTP_URL_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/net/host_port.h"

namespace tandem::http {

struct Url {
  bool tls = false;  // https
  net::HostPort server;
  std::string path;  // begins with '/' and ends without; or empty

  int default_port() const { return tls ? 443 : 80; }
  // The value of the Host header: without a default port.
  std::string Host() const;
  std::string ToString() const;
};

// Parses http[s]://HOST[:PORT][/PATH]. INVALID_ARGUMENT for anything else: another scheme, a user or
// password (they would be sent to whoever answers, and end up in logs), a query or a fragment.
absl::StatusOr<Url> ParseUrl(absl::string_view text);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_URL_H_
