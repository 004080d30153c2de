// HttpExchange: an HTTP request and its JSON response, complete or as server-sent events.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/exchange.h"
#include "services/rollout/openai/api_error.h"

namespace tandem::rollout::openai {

// Used by the thread that serves the request. Writes block on a slow client (http::Exchange).
class HttpExchange {
 public:
  using Headers = http::Headers;

  explicit HttpExchange(http::Exchange& exchange) : exchange_(exchange) {}

  const http::Request& request() const { return exchange_.request(); }

  // Parses the JSON object in the body, and frees the body. Errors: ParseJsonBody().
  absl::StatusOr<nlohmann::ordered_json> TakeJson();

  // Sends the complete response.
  void Reply(int code, const nlohmann::ordered_json& body, const Headers& headers = {});
  void ReplyError(const absl::Status& status, FieldNames names = FieldNames::kOpenAi);

  // A stream: head, events, end. BeginEvents() and SendEvent() return false if the client is gone;
  // later writes are discarded.
  bool BeginEvents(const Headers& headers);
  bool SendEvent(absl::string_view data);
  void EndEvents() { exchange_.EndStream(); }

  // In any thread, while nothing is sent.
  bool ClientGone() { return exchange_.ClientGone(); }

 private:
  http::Exchange& exchange_;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_
