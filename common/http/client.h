// HTTP client for requests from this process, plain or over TLS.
//
//   ASSIGN_OR_RETURN(http::Url url, http::ParseUrl("https://collector/v1/traces"));
//   ASSIGN_OR_RETURN(const http::Response answer,
//                    http::Post({.url = url, .body = body}, absl::Now() + absl::Seconds(10)));
//
// Servers of https URLs must have a certificate for their name from an authority that OpenSSL trusts:
// those of the system, or of the file SSL_CERT_FILE or the folder SSL_CERT_DIR. The process reads
// them once. Redirects are answers like any other, and no proxy is used.
#ifndef TANDEM_COMMON_HTTP_CLIENT_H_
#define TANDEM_COMMON_HTTP_CLIENT_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"
#include "common/http/url.h"
#include "common/net/socket_address.h"

namespace tandem::http {

struct PostRequest {
  Url url;
  std::string content_type = "application/json";
  Headers headers;  // besides those that the client sets
  std::string body;
};

// Returns the response, of at most 1 MiB, with its headers and whatever its status code. UNAVAILABLE,
// with the reason, if there is none; UNAUTHENTICATED if the server's certificate is not accepted;
// DEADLINE_EXCEEDED if the response is not complete in time; CANCELLED soon after `cancelled`, which
// may be null, is true. Resolving the name comes first and takes as long as the system's resolver
// does. Each request has a connection of its own.
absl::StatusOr<Response> Post(PostRequest request, absl::Time deadline,
                              const std::function<bool()>& cancelled = nullptr);

struct GetRequest {
  Url url;
  // Where to connect, one after another: the addresses of url.server, which the caller has resolved
  // and found good. No name is resolved again in between.
  std::vector<net::SocketAddress> addresses;
  Headers headers;  // besides those that the client sets
  size_t max_bytes = size_t{1} << 20;
};

// Post() for GET, but RESOURCE_EXHAUSTED for a response of more than max_bytes.
absl::StatusOr<Response> Get(const GetRequest& request, absl::Time deadline,
                             const std::function<bool()>& cancelled = nullptr);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_CLIENT_H_
