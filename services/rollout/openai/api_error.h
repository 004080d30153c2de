// Converts a status to the error object that OpenAI clients expect:
//   {"error": {"message": "...", "type": "invalid_request_error",
//              "param": "temperature", "code": null}}
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/http/message.h"

namespace tandem::rollout::openai {

// Error reasons with their own HTTP code.
inline constexpr char kMethodNotAllowed[] = "METHOD_NOT_ALLOWED";
inline constexpr char kUnsupportedMediaType[] = "UNSUPPORTED_MEDIA_TYPE";

inline constexpr char kJsonType[] = "application/json";

// 400 for a bad request, 401 for authentication, 404 for an unknown name, 405 and 415 for the wrong
// method or media type, 429 for limits, 503 if another replica, or this one later, may succeed, 504
// after a deadline, 500 otherwise.
int HttpCode(const absl::Status& status);

// True if a client should retry, because the same request may succeed later.
bool MayRetry(int http_code);

// Which names the fields of GenerateRequest have: those of OpenAI's requests, or those of
// /inference/v1/generate.
enum class FieldNames { kOpenAi, kGenerate };

// `param` is the field name in the HTTP request.
nlohmann::ordered_json ErrorBody(const absl::Status& status,
                                 FieldNames names = FieldNames::kOpenAi);

// The complete response to a status, or to an error from the HTTP server, with the headers that its
// code requires.
http::Response ErrorResponse(const absl::Status& status, FieldNames names = FieldNames::kOpenAi);
http::Response ErrorResponse(const http::Error& error);

// JSON text; replaces invalid UTF-8 bytes by U+FFFD.
std::string Dump(const nlohmann::ordered_json& value);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_API_ERROR_H_
