#include "services/rollout/openai/http_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/json_body.h"

namespace tandem::rollout::openai {

absl::StatusOr<nlohmann::ordered_json> HttpExchange::TakeJson() {
  absl::StatusOr<nlohmann::ordered_json> parsed = ParseJsonBody(exchange_.request().body);
  exchange_.ReleaseBody();
  return parsed;
}

void HttpExchange::Reply(int code, const nlohmann::ordered_json& body, const Headers& headers) {
  exchange_.Reply(
      {.code = code, .content_type = kJsonType, .headers = headers, .body = Dump(body)});
}

void HttpExchange::ReplyError(const absl::Status& status, FieldNames names) {
  exchange_.Reply(ErrorResponse(status, names));
}

bool HttpExchange::BeginEvents(const Headers& headers) {
  return exchange_.BeginStream(
      {.code = 200, .content_type = "text/event-stream; charset=utf-8", .headers = headers});
}

bool HttpExchange::SendEvent(absl::string_view data) {
  return exchange_.Write(absl::StrCat("data: ", data, "\n\n"));
}

}  // namespace tandem::rollout::openai
