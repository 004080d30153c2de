// Server: HTTP/1.1 on one port, which stays there for its other clients whatever some of them do.
//
//   class Site final : public http::Handler {
//     http::Admission Admit(const http::Request& head) override { return {}; }
//     void Serve(http::Exchange& exchange) override { exchange.Reply({.body = "fine\n"}); }
//   };
//   Site site;
//   ASSIGN_OR_RETURN(const auto server, http::Server::Start({.listen = "127.0.0.1:0"}, site));
//
// One thread accepts and reads. A connection costs a thread once its whole request is there, so
// idle and trickling clients cost a descriptor until their deadline. Where there are too many, of
// an address or in all, the one that has kept the server waiting longest is closed for a newcomer,
// which is why a short request (/health, /metrics) is answered during a flood. Limits: limits.h.
// Who may ask: host_policy.h, with the names of kAllowHostVariable. Each connection carries one
// request.
#ifndef TANDEM_COMMON_HTTP_SERVER_H_
#define TANDEM_COMMON_HTTP_SERVER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/exchange.h"
#include "common/http/limits.h"
#include "common/http/message.h"

namespace tandem::http {

// What a handler says to a request's head.
struct Admission {
  bool slow = false;          // answered in Limits::slow
  size_t max_body_bytes = 0;  // more is refused with 413
  // Carries a secret that no browser sends by itself: the Host header may be any.
  bool authenticated = false;
  std::optional<Response> refusal;  // sent instead of an answer, before the body is read
};

// Outlives its server. An exception out of any of them is answered with 500.
class Handler {
 public:
  virtual ~Handler() = default;
  // On the thread that all connections share: must neither wait nor parse a body.
  virtual Admission Admit(const Request& head) = 0;
  // On a thread of its own. Without a reply the answer is 500.
  virtual void Serve(Exchange& exchange) = 0;
  // What the server itself refuses, as this handler's clients know errors. By default plain text.
  virtual Response Refuse(const Error& error) const;
};

struct Options {
  std::string listen;  // HOST:PORT; port 0 takes a free one
  Limits limits;
};

class Server {
 public:
  // Serves when it returns. INVALID_ARGUMENT for options that do not fit, UNAVAILABLE, with the
  // system's reason, where the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, Handler& handler);
  // Like Stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Whether no request is served, and no answer written, by `deadline` at the latest.
  bool AwaitIdle(absl::Time deadline);

  // Closes the port and all connections; waits for the handlers, whose clients are then gone.
  void Stop();

 private:
  class Impl;

  Server() = default;

  std::unique_ptr<Impl> impl_;
  std::string address_;
  int port_ = 0;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_SERVER_H_
