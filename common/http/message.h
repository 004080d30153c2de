// A request and an answer of HTTP, and the errors that a server answers by itself.
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
  std::string query;  // what follows '?', as it was sent
  bool http_1_0 = false;
  Headers headers;
  std::string body;  // empty until it was read

  // The first of this name, in any case; null where there is none.
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

// Why the server itself refuses a request. Handlers give it the form that their clients know.
struct Error {
  int code = 400;
  const char* reason = "BAD_REQUEST";  // a word for programs
  std::string message;
};

// "Not Found" for 404.
absl::string_view ReasonPhrase(int code);

// The head of an answer, with the blank line that ends it: each connection carries one request,
// nothing is cached, and no other site may use the answer.
std::string SerializeHead(const Response& response, const Headers& framing);

// Undoes percent-encoding; nullopt where an escape is malformed or stands for a control character.
std::optional<std::string> PercentDecode(absl::string_view text, bool plus_is_space);

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_MESSAGE_H_
