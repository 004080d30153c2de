// HttpExchange: one request and its answer, whole or as a stream of server-sent events.
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_

#include <civetweb.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/rollout/openai/client_socket.h"

namespace tandem::rollout::openai {

// Used by the thread of the connection, while that is open. A write waits for a slow client, at
// most as long as the server's request_timeout_ms.
class HttpExchange {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  explicit HttpExchange(mg_connection* connection);

  std::string_view method() const { return info_.request_method; }
  std::string_view path() const { return info_.local_uri == nullptr ? "" : info_.local_uri; }
  // Null where there is none.
  const char* Header(const char* name) const { return mg_get_header(connection_, name); }

  // The JSON object in the body. INVALID_ARGUMENT where it is none, or nests too deep;
  // REQUEST_TOO_LARGE and UNSUPPORTED_MEDIA_TYPE as in api_error.h.
  absl::StatusOr<nlohmann::ordered_json> ReadJson(size_t max_bytes);

  // The whole answer.
  void Reply(int code, const nlohmann::ordered_json& body, const Headers& headers = {});
  void ReplyError(const absl::Status& status);

  // A stream: its head, its events, its end. False where the client is gone; what is written after
  // that goes nowhere.
  bool BeginEvents(const Headers& headers);
  bool SendEvent(absl::string_view data);
  void EndEvents();

  bool ClientGone() { return gone_ || socket_.Gone(); }

  // Of what was answered; 0 before.
  int code() const { return code_; }

 private:
  absl::StatusOr<std::string> ReadBody(size_t max_bytes);
  std::string Head(int code, absl::string_view content_type, const Headers& headers);
  bool Write(std::string_view bytes);

  mg_connection* const connection_;
  const mg_request_info& info_;
  const bool chunked_;  // what HTTP/1.1 clients understand
  ClientSocket socket_;
  bool gone_ = false;
  int code_ = 0;
};

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_HTTP_EXCHANGE_H_
