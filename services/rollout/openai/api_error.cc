#include "services/rollout/openai/api_error.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::rollout::openai {
namespace {

std::string Reason(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

// The engine names the fields of GenerateRequest.
std::string FieldOfRequest(absl::string_view field, FieldNames names) {
  if (names == FieldNames::kGenerate) {
    if (field == "top_logprobs") return "sampling_params.logprobs";
    if (field == "n") return "sampling_params.n";
    if (absl::ConsumePrefix(&field, "token_ids.ids")) return absl::StrCat("token_ids", field);
    if (absl::ConsumePrefix(&field, "sampling.")) return absl::StrCat("sampling_params.", field);
    return field == "client_id" ? "user" : std::string(field);
  }
  absl::ConsumePrefix(&field, "sampling.");
  if (absl::StartsWith(field, "token_ids") || field == "text") return "prompt";
  if (field == "client_id") return "user";
  return std::string(field);
}

const char* TypeOf(int http_code) {
  switch (http_code) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return http_code < 500 ? "invalid_request_error" : "server_error";
  }
}

http::Response ToResponse(int code, const nlohmann::ordered_json& body) {
  http::Response response;
  response.code = code;
  response.content_type = kJsonType;
  response.body = Dump(body);
  if (MayRetry(code)) response.headers.push_back({"Retry-After", "1"});
  if (code == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace

int HttpCode(const absl::Status& status) {
  const std::string reason = Reason(status);
  if (reason == kMethodNotAllowed) return 405;
  if (reason == kUnsupportedMediaType) return 415;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kCancelled:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

bool MayRetry(int http_code) { return http_code == 429 || http_code == 503; }

nlohmann::ordered_json ErrorBody(const absl::Status& status, FieldNames names) {
  const auto bad = rpc::GetDetail<common::v1::BadField>(status);
  const std::string reason = Reason(status);
  nlohmann::ordered_json error;
  error["message"] = std::string(status.message());
  error["type"] = TypeOf(HttpCode(status));
  error["param"] = nullptr;
  if (bad.has_value()) {
    const std::string field = FieldOfRequest(bad->field(), names);
    error["param"] = field;
    error["message"] = absl::StrCat(field, ": ", bad->description());
  }
  error["code"] = nullptr;
  // The name that clients look for.
  if (reason == "CONTEXT_TOO_LONG") {
    error["code"] = "context_length_exceeded";
  } else if (!reason.empty()) {
    error["code"] = absl::AsciiStrToLower(reason);
  }
  return {{"error", error}};
}

http::Response ErrorResponse(const absl::Status& status, FieldNames names) {
  return ToResponse(HttpCode(status), ErrorBody(status, names));
}

http::Response ErrorResponse(const http::Error& error) {
  nlohmann::ordered_json body;
  body["message"] = error.message;
  body["type"] = TypeOf(error.code);
  body["param"] = nullptr;
  body["code"] = absl::AsciiStrToLower(error.reason);
  return ToResponse(error.code, {{"error", std::move(body)}});
}

std::string Dump(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tandem::rollout::openai
