// HTTP request and response, and the errors that the server itself returns.
//
//   http::Response response{.code = 200, .content_type = "text/plain", .body = "fine\n"};
//   const std::optional<std::string> step = request.QueryValue("step");
#ifndef TANDEM_COMMON_HTTP_MESSAGE_H_
#define TANDEM_COMMON_HTTP_MESSAGE_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace tandem::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string path;   // percent-decoded, without the query; begins with '/', or is "*"
  std::string query;  // raw bytes after '?'
  bool http_1_0 = false;
  Headers headers;
  std::string body;  // empty until it has been read

  // The first header of this name, case-insensitive; null if there is none.
  const std::string* Header(absl::string_view name) const;
  int CountHeader(absl::string_view name) const;

  // The decoded value of the first NAME=VALUE of the query.
  std::optional<std::string> QueryValue(absl::string_view name) const;
};

struct Response {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  Headers headers;
  std::string body;
};

// Why the server itself refuses a request. Handlers turn it into their clients' error format.
struct Error {
  int code = 400;
  const char* reason = "BAD_REQUEST";  // machine-readable
  std::string message;
};

// "Not Found" for 404.
absl::string_view ReasonPhrase(int code);

// Returns the response head with its final blank line. It says that the connection closes after
// this response, that nothing is cached, and that no other site may use the response.
std::string SerializeHead(const Response& response, const Headers& framing);

// Decodes percent-encoding; nullopt if an escape is malformed or the result would contain a control
// character.
std::optional<std::string> PercentDecode(absl::string_view text, bool plus_is_space);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_MESSAGE_H_
