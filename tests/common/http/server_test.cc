#include "common/http/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/telemetry/log.h"
#include "tests/common/http/test_site.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"

namespace tandem::http {
namespace {

using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpDial;
using ::tandem::testing::HttpGet;
using ::tandem::testing::HttpPost;
using ::tandem::testing::HttpReadAll;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(HttpServer, AnswersEachKindOfRequest) {
  TestSite site({.slow = {.num_threads = 1}});
  const HttpAnswer quick = HttpGet(site.port(), "/quick");
  EXPECT_EQ(quick.code, 200);
  EXPECT_EQ(quick.body, "fine");
  EXPECT_THAT(quick.head, HasSubstr("Content-Length: 4"));
  EXPECT_THAT(quick.head, HasSubstr("Connection: close"));
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/length", std::string(100000, 'a'))).body, "100000");
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/slow/x", "")).body, "fine");
  EXPECT_EQ(HttpGet(site.port(), "/refused").code, 401);
  const HttpAnswer head = HttpAsk(site.port(), "HEAD /quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.head, HasSubstr("Content-Length: 4"));
  EXPECT_EQ(HttpAsk(site.port(), "GET /quick HTTP/1.0\r\n\r\n").body, "fine");
}

TEST(HttpServer, AnExceptionIsAnswered500AndEndsNothing) {
  TestSite site;
  for (const char* path : {"/throws", "/throws-a-number", "/admit-throws", "/silent"}) {
    const HttpAnswer answer = HttpGet(site.port(), path);
    EXPECT_EQ(answer.code, 500) << path;
    EXPECT_THAT(answer.body, Not(HasSubstr("out of order"))) << "told to strangers";
  }
  EXPECT_EQ(HttpGet(site.port(), "/quick").code, 200);
}

TEST(HttpServer, WantOfMemoryIsLoggedWithTheLimitsAndWhatToLower) {
  static std::vector<std::string>* lines = new std::vector<std::string>;
  static absl::Mutex mu;
  {
    TestSite site;
    telemetry::SetLogSink([](absl::string_view line) {
      absl::MutexLock lock(&mu);
      lines->emplace_back(line);
    });
    EXPECT_EQ(HttpGet(site.port(), "/throws-for-memory").code, 500);
  }
  telemetry::SetLogSink(nullptr);
  absl::MutexLock lock(&mu);
  EXPECT_THAT(*lines, Contains(AllOf(HasSubstr("path=/throws-for-memory"),
                                     HasSubstr("out of memory"), HasSubstr("lower rollout."))));
}

TEST(HttpServer, AStreamThatBreaksDoesNotLookComplete) {
  TestSite site;
  const HttpAnswer whole = HttpGet(site.port(), "/events");
  EXPECT_EQ(whole.body, "4\r\none\n\r\n4\r\ntwo\n\r\n6\r\nthree\n\r\n0\r\n\r\n");
  EXPECT_EQ(HttpAsk(site.port(), "GET /events HTTP/1.0\r\n\r\n").body, "one\ntwo\nthree\n");
  EXPECT_THAT(HttpGet(site.port(), "/stream-throws").body, Not(EndsWith("0\r\n\r\n")));
  EXPECT_EQ(HttpGet(site.port(), "/quick").code, 200);
}

TEST(HttpServer, AWebPageOfAnotherSiteIsRefused) {
  TestSite site;
  const auto ask = [&](const std::string& headers, const std::string& method = "GET") {
    return HttpAsk(site.port(), method + " /quick HTTP/1.1\r\n" + headers + "\r\n\r\n");
  };
  EXPECT_EQ(ask("Host: rebound.example").code, 421);
  EXPECT_EQ(ask("Host: rebound.example\r\nX-Secret: 1").code, 200) << "no browser knows a secret";
  EXPECT_EQ(ask("Host: localhost\r\nOrigin: http://evil.example").code, 403);
  EXPECT_EQ(ask("Host: localhost\r\nOrigin: null\r\nX-Secret: 1").code, 403);
  EXPECT_EQ(ask("Host: localhost\r\nSec-Fetch-Site: cross-site").code, 403);
  EXPECT_EQ(ask("Host: localhost\r\nOrigin: http://localhost").code, 200);
  const HttpAnswer preflight = ask(
      "Host: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n"
      "Access-Control-Request-Headers: content-type",
      "OPTIONS");
  EXPECT_EQ(preflight.code, 403);
  EXPECT_THAT(preflight.head, Not(HasSubstr("Access-Control")));
}

TEST(HttpServer, ABodyAboveTheLimitIsRefusedThoughItsClientStillSends) {
  TestSite site;
  const std::string large(size_t{5} << 20, 'a');
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/length", large)).code, 413);
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/length", large.substr(0, size_t{4} << 20))).body,
            std::to_string(4 << 20));
}

TEST(HttpServer, AClientThatExpectsToContinueIsTold) {
  TestSite site;
  const auto head = [](const std::string& path, const std::string& more) {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n" + more +
           "\r\n\r\n";
  };
  const host::FileDescriptor fd = HttpDial(site.port(), head("/length", "Expect: 100-continue"));
  char interim[25] = "";
  ASSERT_EQ(recv(fd.get(), interim, sizeof(interim), MSG_WAITALL), 25);
  EXPECT_EQ(std::string(interim, 25), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(testing::HttpSend(fd, "abc"));
  EXPECT_THAT(HttpReadAll(fd), EndsWith("\r\n\r\n3"));
  EXPECT_THAT(HttpReadAll(HttpDial(site.port(), head("/refused", "Expect: 100-continue"))),
              StartsWith("HTTP/1.1 401"));
  EXPECT_EQ(HttpAsk(site.port(), head("/length", "Expect: tea")).code, 417);
}

TEST(HttpServer, AHalfClosedClientGetsItsAnswer) {
  TestSite site;
  const host::FileDescriptor fd =
      HttpDial(site.port(), "GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n");
  shutdown(fd.get(), SHUT_WR);
  EXPECT_THAT(HttpReadAll(fd), EndsWith("fine"));
}

TEST(HttpServer, ListensOnBothFamilies) {
  TestSite any({}, "[::]:0");
  EXPECT_EQ(HttpGet(any.port(), "/quick").code, 200) << "IPv4";
  TestSite six({}, "[::1]:0");
  EXPECT_EQ(six.server().address(), absl::StrCat("[::1]:", six.port()));
  EXPECT_EQ(HttpGet(six.port(), "/quick").code, 0);
}

TEST(HttpServer, SaysWhyItCannotListen) {
  TestSite site;
  EXPECT_THAT(Server::Start({.listen = site.server().address()}, site).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("in use")));
  EXPECT_THAT(Server::Start({.listen = "8000"}, site).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
}

TEST(HttpServer, IsIdleWhenItsHandlersAre) {
  TestSite site({.slow = {.num_threads = 4}});
  EXPECT_TRUE(site.server().AwaitIdle(absl::InfinitePast()));
  const host::FileDescriptor held =
      HttpDial(site.port(), "GET /slow/hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  site.AwaitHeld(1);
  EXPECT_FALSE(site.server().AwaitIdle(absl::InfinitePast()));
  site.Release();
  EXPECT_TRUE(site.server().AwaitIdle(absl::InfiniteFuture()));
  EXPECT_THAT(HttpReadAll(held), EndsWith("fine"));
}

TEST(HttpServer, StoppingEndsStreams) {
  TestSite site;
  const host::FileDescriptor fd =
      HttpDial(site.port(), "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  char byte = 0;
  ASSERT_EQ(recv(fd.get(), &byte, 1, 0), 1);
  site.server().Stop();
  EXPECT_TRUE(site.stream_ended().HasBeenNotified());
  EXPECT_EQ(HttpGet(site.port(), "/quick").code, 0) << "nobody listens any more";
}

}  // namespace
}  // namespace tandem::http
