// Url: an http or https address to send requests to.
//
//   ASSIGN_OR_RETURN(const http::Url url, http::ParseUrl("https://api.openai.com/v1"));
//   const std::string& host = url.server.host;  // "api.openai.com", port 443
//   const std::string& path = url.path;         // "/v1"
//   ASSIGN_OR_RETURN(const http::Url file, http::ParseFileUrl("https://host/a.png?size=2"));
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
  std::string path;   // begins with '/' and ends without, but for files; or empty
  std::string query;  // begins with '?'; or empty

  int default_port() const { return tls ? 443 : 80; }
  // The value of the Host header: without a default port.
  std::string Host() const;
  std::string ToString() const;
  // Without the query, which may hold a signature: for messages.
  std::string WithoutQuery() const;
};

// Parses http[s]://HOST[:PORT][/PATH]. INVALID_ARGUMENT for anything else: another scheme, a user or
// password (they would be sent to whoever answers, and end up in logs), a query or a fragment.
absl::StatusOr<Url> ParseUrl(absl::string_view text);

// Parses the URL of a file: the path stays as it is, it may have a query, and a fragment is left out.
// The scheme may be in capitals. INVALID_ARGUMENT for another scheme, a user or password, white space,
// characters that are not ASCII (percent-encode them), more than 8192 bytes; it shows no query.
absl::StatusOr<Url> ParseFileUrl(absl::string_view text);

// Where the redirect `location` of `from` leads: a URL, or a path on the same server. INVALID_ARGUMENT
// for anything else, and for what ParseFileUrl() refuses; PERMISSION_DENIED for a redirect from https
// to http.
absl::StatusOr<Url> FollowRedirect(const Url& from, absl::string_view location);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_URL_H_
