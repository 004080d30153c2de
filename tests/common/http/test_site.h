// A site for tests of the HTTP server, with pages that misbehave.
#ifndef TANDEM_TESTS_COMMON_HTTP_TEST_SITE_H_
#define TANDEM_TESTS_COMMON_HTTP_TEST_SITE_H_

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/http/server.h"
#include "tests/support/status_matchers.h"

namespace tandem::http {

// GET  /quick, /length (of the body), /big (a large answer), /silent (no answer),
//      /throws, /throws-a-number, /throws-for-memory, /admit-throws
//      /stream (until its client is gone), /stream-throws, /events (three pieces)
// Those below /slow/ are of the slow lane; /slow/hold waits for Release().
class TestSite final : public Handler {
 public:
  explicit TestSite(Limits limits = {}, const std::string& listen = "127.0.0.1:0") {
    auto server = Server::Start({.listen = listen, .limits = limits}, *this);
    EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
  }
  ~TestSite() override {
    Release();
    server_.reset();
  }

  Server& server() { return *server_; }
  int port() const { return server_->port(); }

  void AwaitHeld(int count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] { return num_held_ >= count; };
    mu_.Await(absl::Condition(&enough));
  }
  void Release() {
    absl::MutexLock lock(&mu_);
    released_ = true;
  }
  // A stream ended because its client went, or did not read.
  absl::Notification& stream_ended() { return stream_ended_; }

  Admission Admit(const Request& head) override {
    if (head.path == "/admit-throws") throw std::runtime_error("no admission");
    Admission admission;
    admission.slow = absl::StartsWith(head.path, "/slow/");
    admission.max_body_bytes = size_t{4} << 20;
    admission.authenticated = head.Header("X-Secret") != nullptr;
    if (head.path == "/refused") admission.refusal = Response{.code = 401, .body = "who?"};
    return admission;
  }

  void Serve(Exchange& exchange) override {
    const std::string& path = exchange.request().path;
    if (path == "/throws") throw std::runtime_error("out of order");
    if (path == "/throws-a-number") throw 17;
    if (path == "/throws-for-memory") throw std::bad_alloc();
    if (path == "/silent") return;
    if (path == "/stream" || path == "/stream-throws") return Stream(exchange);
    if (path == "/events") {
      exchange.BeginStream({.content_type = "text/event-stream"});
      for (const char* piece : {"one\n", "two\n", "three\n"}) exchange.Write(piece);
      return exchange.EndStream();
    }
    if (path == "/slow/hold") Hold();
    exchange.Reply({.body = path == "/length" ? absl::StrCat(exchange.request().body.size())
                            : path == "/big"  ? std::string(size_t{64} << 20, 'x')
                                              : "fine"});
  }

 private:
  void Stream(Exchange& exchange) {
    exchange.BeginStream({.content_type = "text/event-stream"});
    if (exchange.request().path == "/stream-throws") {
      exchange.Write("begun");
      throw std::runtime_error("torn");
    }
    const std::string piece(65536, 'x');
    while (exchange.Write(piece)) {
    }
    stream_ended_.Notify();
  }
  void Hold() {
    absl::MutexLock lock(&mu_);
    ++num_held_;
    mu_.Await(absl::Condition(&released_));
  }

  absl::Mutex mu_;
  int num_held_ = 0;
  bool released_ = false;
  absl::Notification stream_ended_;
  std::unique_ptr<Server> server_;
};

}  // namespace tandem::http

#endif  // TANDEM_TESTS_COMMON_HTTP_TEST_SITE_H_
