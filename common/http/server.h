// Server: HTTP/1.1 on one port, which stays responsive whatever some of its clients do.
//
//   class Site final : public http::Handler {
//     http::Admission Admit(const http::Request& head) override { return {}; }
//     void Serve(http::Exchange& exchange) override { exchange.Reply({.body = "fine\n"}); }
//   };
//   Site site;
//   ASSIGN_OR_RETURN(const auto server, http::Server::Start({.listen = "127.0.0.1:0"}, site));
//
// One thread accepts and reads. A connection occupies a worker thread only once its request is
// complete, so idle and trickling clients cost a descriptor until their deadline. When an address,
// or all together, hold too many connections, the server closes the one that has kept it waiting
// longest to admit a new one, so short requests (/health, /metrics) succeed during a flood. See
// limits.h for limits and host_policy.h for access, with the names of kAllowHostVariable. Each
// connection carries one request.
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

// A handler's decision on a request's head.
struct Admission {
  bool slow = false;          // serve it in Limits::slow
  size_t max_body_bytes = 0;  // refuse larger bodies with 413
  // The request carries a secret that no browser sends by itself: accept any Host header.
  bool authenticated = false;
  std::optional<Response> refusal;  // send this at once and do not read the body
};

// Must outlive its server. If a method throws, the server responds with 500.
class Handler {
 public:
  virtual ~Handler() = default;
  // Runs on the thread that all connections share: must neither block nor parse a body.
  virtual Admission Admit(const Request& head) = 0;
  // Runs on a worker thread. If it does not reply, the server responds with 500.
  virtual void Serve(Exchange& exchange) = 0;
  // Turns the server's own error into the error format of this handler's clients. Default: text.
  virtual Response Refuse(const Error& error) const;
};

struct Options {
  std::string listen;  // HOST:PORT; port 0 takes a free one
  Limits limits;
};

class Server {
 public:
  // The server is serving when this returns. INVALID_ARGUMENT for invalid options; UNAVAILABLE,
  // with the system's reason, if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Options& options, Handler& handler);
  // Like Stop().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // HOST:PORT with the real port.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  // Waits until no request is being served and no response written; false if `deadline` is first.
  bool AwaitIdle(absl::Time deadline);

  // Closes the port and all connections, then waits for running handlers; these see their clients
  // gone.
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
