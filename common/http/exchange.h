// Exchange: one request as its handler sees it, and its response, complete or streamed.
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

// Only the thread that serves the request uses it.
class Exchange {
 public:
  // `fd`: the connection, non-blocking; it must stay open while the exchange is in use.
  Exchange(Request request, int fd, absl::Duration write_timeout)
      : request_(std::move(request)), fd_(fd), write_timeout_(write_timeout) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const Request& request() const { return request_; }
  // Frees the body's memory, which counts against the server's limit until then.
  void ReleaseBody();
  void set_on_body_released(std::function<void()> callback) { on_release_ = std::move(callback); }

  // Sets the complete response. The server writes it after the handler returns, so a slow reader
  // holds no thread.
  void Reply(Response response);

  // Streams a response: its head (without a body), its bytes, its end. Write() waits for a slow
  // reader, in total at most `write_timeout` plus a second per 256 KiB sent. False if the client
  // has gone or reads too slowly; later writes are dropped.
  bool BeginStream(const Response& head);
  bool Write(std::string_view bytes);
  void EndStream();

  // True once the client has closed its end. Costs a system call. Other threads may call it while this one
  // sends nothing.
  bool ClientGone();

  // Status code of the response; 0 before there is one.
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
  absl::Duration waited_ = absl::ZeroDuration();  // spent waiting for the reader
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_EXCHANGE_H_
