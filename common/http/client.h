// Plain-HTTP client for requests from this process.
//
//   ASSIGN_OR_RETURN(const http::Response answer,
//                    http::Post({"collector", 4318}, "/v1/traces", "application/json", body,
//                               absl::Now() + absl::Seconds(10)));
#ifndef TANDEM_COMMON_HTTP_CLIENT_H_
#define TANDEM_COMMON_HTTP_CLIENT_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/message.h"
#include "common/net/host_port.h"

namespace tandem::http {

// Returns the response, of at most 1 MiB, whatever its status code. UNAVAILABLE, with the reason,
// if there is none; DEADLINE_EXCEEDED if it is not complete in time; CANCELLED soon after
// `cancelled`, which may be null, is true. Resolving the name comes first and takes as long as the
// system's resolver does.
absl::StatusOr<Response> Post(const net::HostPort& to, const std::string& path,
                              const std::string& content_type, std::string body,
                              absl::Time deadline,
                              const std::function<bool()>& cancelled = nullptr);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_CLIENT_H_
