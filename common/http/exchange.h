// Exchange: one request as its handler sees it, and the answer, whole or as a stream.
//
//   void Serve(http::Exchange& exchange) override {
//     exchange.Reply({.code = 200, .body = "fine\n"});
//   }
#ifndef TANDEM_COMMON_HTTP_EXCHANGE_H_
#define TANDEM_COMMON_HTTP_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "common/http/message.h"

namespace tandem::http {

// Used by the one thread that serves the request.
class Exchange {
 public:
  // `fd` is the connection, not blocking. It stays open longer than the exchange is used.
  Exchange(Request request, int fd, absl::Duration write_timeout)
      : request_(std::move(request)), fd_(fd), write_timeout_(write_timeout) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Request& request() const { return request_; }
  // Frees the body's memory, which counts against the server's limit until then.
  void ReleaseBody();
  void set_on_body_released(std::function<void()> callback) { on_release_ = std::move(callback); }

  // The whole answer. The server writes it once the handler has returned, so that a slow reader
  // holds no thread.
  void Reply(Response response);

  // A stream: its head (without a body), its bytes, its end. Write() waits for a slow reader: in
  // all at most `write_timeout` and a second for each 256 KiB that were taken. False where the
  // client has gone or reads too slowly; what is written after that goes nowhere.
  bool BeginStream(const Response& head);
  bool Write(std::string_view bytes);
  void EndStream();

  // The client has closed its end. Costs a system call.
  bool ClientGone();

  // The code of what was answered; 0 before.
  int code() const { return code_; }

  // For the server, after the handler.
  bool streams() const { return streams_; }
  bool stream_complete() const { return complete_ && !gone_; }
  std::optional<Response>& reply() { return reply_; }

 private:
  bool Send(std::string_view bytes);

  Request request_;
  const int fd_;
  const absl::Duration write_timeout_;
  std::function<void()> on_release_;
  std::optional<Response> reply_;
  bool streams_ = false;
  bool complete_ = false;
  bool gone_ = false;
  int code_ = 0;
  int64_t sent_bytes_ = 0;
  absl::Duration waited_ = absl::ZeroDuration();  // for the reader
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_EXCHANGE_H_
