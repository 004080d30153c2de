// From a status to the error object that OpenAI's clients know:
//   {"error": {"message": "...", "type": "invalid_request_error", "param": "temperature", "code":
//   null}}
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/http/message.h"

namespace tandem::rollout::openai {

// Reasons that have an HTTP code of their own.
inline constexpr char kMethodNotAllowed[] = "METHOD_NOT_ALLOWED";
inline constexpr char kUnsupportedMediaType[] = "UNSUPPORTED_MEDIA_TYPE";

inline constexpr char kJsonType[] = "application/json";

// 400 for what the request says, 401 and 404 for whom and what it names, 415 and 429 for limits,
// 503 where another replica, or this one later, may answer, 504 after a deadline, 500 otherwise.
int HttpCode(const absl::Status& status);

// Whether the same request may succeed later, so that a client should try again.
bool MayRetry(int http_code);

// `param` is the field as the HTTP request names it.
nlohmann::ordered_json ErrorBody(const absl::Status& status);

// The whole answer, with the headers that its code asks for: of a status, or of an error that the
// HTTP server found.
http::Response ErrorResponse(const absl::Status& status);
http::Response ErrorResponse(const http::Error& error);

// JSON text; bytes that are no UTF-8 become U+FFFD.
std::string Dump(const nlohmann::ordered_json& value);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_
