// Clients that wait, trickle, never read or flood, and those who ask beside them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/common/http/test_site.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/run_processes.h"

namespace tandem::http {
namespace {

using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpCodeOf;
using ::tandem::testing::HttpDial;
using ::tandem::testing::HttpGet;
using ::tandem::testing::HttpIsClosed;
using ::tandem::testing::HttpPost;
using ::tandem::testing::HttpReadAll;
using ::tandem::testing::HttpSend;
using ::testing::HasSubstr;

constexpr char kHold[] = "GET /slow/hold HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr char kBodyBegins[] =
    "POST /slow/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc";
constexpr char kHeadBegins[] = "GET /quick HTTP/1.1\r\nHost: loc";

TEST(HttpServerUnderAttack, WaitingConnectionsGiveWayToNewOnes) {
  TestSite site({.max_connections = 32});
  std::vector<host::FileDescriptor> waiting;
  const std::string kinds[] = {"", kHeadBegins, kBodyBegins};
  for (int i = 0; i < 300; ++i) waiting.push_back(HttpDial(site.port(), kinds[i % 3]));

  EXPECT_EQ(HttpGet(site.port(), "/quick").code, 200);
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/length", "abc")).body, "3");

  EXPECT_TRUE(HttpIsClosed(waiting.front()));
  EXPECT_FALSE(HttpIsClosed(waiting.back()));
}

TEST(HttpServerUnderAttack, AnswersDuringAFlood) {
  TestSite site({.max_connections = 256});
  std::atomic<bool> done{false};
  std::vector<std::thread> floods;
  for (int i = 0; i < 2; ++i) {
    floods.emplace_back([&] {
      std::vector<host::FileDescriptor> open(200);
      for (size_t at = 0; !done; ++at) {
        open[at % open.size()] = HttpDial(site.port(), kHeadBegins, "127.0.0.3");
      }
    });
  }
  int num_answered = 0;
  for (int i = 0; i < 10; ++i) num_answered += HttpGet(site.port(), "/quick").code == 200 ? 1 : 0;
  done = true;
  for (std::thread& flood : floods) flood.join();
  EXPECT_EQ(num_answered, 10);
}

TEST(HttpServerUnderAttack, OneClientsConnectionsLeaveRoomForOthers) {
  TestSite site({.max_connections = 32});
  const host::FileDescriptor other = HttpDial(site.port(), kHeadBegins, "127.0.0.2");
  std::vector<host::FileDescriptor> waiting;
  for (int i = 0; i < 100; ++i) waiting.push_back(HttpDial(site.port(), "", "127.0.0.3"));
  ASSERT_EQ(HttpGet(site.port(), "/quick").code, 200);  // all of them were accepted by now

  ASSERT_TRUE(HttpSend(other, "alhost\r\n\r\n")) << "older than any of the flood";
  EXPECT_EQ(HttpCodeOf(other), 200);
}

TEST(HttpServerUnderAttack, BodiesThatTrickleHoldNoPlace) {
  TestSite site({.slow = {.num_threads = 1}});
  std::vector<host::FileDescriptor> trickling;
  for (int i = 0; i < 20; ++i) trickling.push_back(HttpDial(site.port(), kBodyBegins));
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/slow/x", "abc")).code, 200);

  const host::FileDescriptor held = HttpDial(site.port(), kHold);
  site.AwaitHeld(1);
  // Refused at its head; nobody waits for its body.
  const host::FileDescriptor late = HttpDial(site.port(), kBodyBegins);
  const std::string answer = HttpReadAll(late);
  EXPECT_THAT(answer, HasSubstr("HTTP/1.1 429"));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1"));
  // One that was admitted before and is complete now.
  ASSERT_TRUE(HttpSend(trickling[0], std::string(97, 'x')));
  EXPECT_EQ(HttpCodeOf(trickling[0]), 429);
  EXPECT_EQ(HttpGet(site.port(), "/quick").code, 200);
  site.Release();
}

TEST(HttpServerUnderAttack, OneClientLeavesPlacesToOthers) {
  TestSite site({.slow = {.num_threads = 8}});
  std::vector<host::FileDescriptor> held;
  for (int i = 0; i < 7; ++i) held.push_back(HttpDial(site.port(), kHold, "127.0.0.3"));
  site.AwaitHeld(7);
  EXPECT_THAT(HttpReadAll(HttpDial(site.port(), kHold, "127.0.0.3")),
              HasSubstr("expected at most 7 requests at once from one address"));
  const host::FileDescriptor other = HttpDial(site.port(), kHold, "127.0.0.4");
  site.AwaitHeld(8);
  EXPECT_THAT(HttpReadAll(HttpDial(site.port(), kHold, "127.0.0.5")),
              HasSubstr("expected at most 8 requests at once"));
  site.Release();
  EXPECT_EQ(HttpCodeOf(other), 200);
}

TEST(HttpServerUnderAttack, ARequestHasADeadlineHoweverItTrickles) {
  TestSite site(
      {.head_timeout = absl::Milliseconds(200), .request_timeout = absl::Milliseconds(400)});
  const host::FileDescriptor idle = HttpDial(site.port());
  EXPECT_EQ(HttpReadAll(idle), "");
  const std::string body_begins =
      "POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc";
  for (const std::string& begun : {std::string(kHeadBegins), body_begins}) {
    const host::FileDescriptor fd = HttpDial(site.port(), begun);
    // A byte whenever there is nothing to read for a moment.
    pollfd state{.fd = fd.get(), .events = POLLIN, .revents = 0};
    int num_bytes = 0;
    while (poll(&state, 1, 20) == 0 && num_bytes < 90) num_bytes += HttpSend(fd, "x") ? 1 : 0;
    EXPECT_EQ(HttpCodeOf(fd), 408) << begun;
  }
}

TEST(HttpServerUnderAttack, AStreamWhoseClientNeverReadsEnds) {
  TestSite site({.write_timeout = absl::Milliseconds(200)});
  const host::FileDescriptor fd =
      HttpDial(site.port(), "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  site.stream_ended().WaitForNotification();
  EXPECT_TRUE(site.server().AwaitIdle(absl::InfiniteFuture()));
}

TEST(HttpServerUnderAttack, LargeAnswersThatNobodyReadsHoldNoThread) {
  TestSite site({.quick = {.num_threads = 1, .max_queued = 16},
                 .max_buffered_bytes = int64_t{200} << 20,
                 .write_timeout = absl::Milliseconds(500)});
  std::vector<host::FileDescriptor> silent;
  for (int i = 0; i < 6; ++i) {
    silent.push_back(HttpDial(site.port(), "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    ASSERT_EQ(HttpGet(site.port(), "/quick").code, 200);
  }
  // Each is of 64 MiB, so some were given up at once, and the others at their deadline.
  EXPECT_TRUE(site.server().AwaitIdle(absl::Now() + absl::Seconds(60)));
}

TEST(HttpServerUnderAttack, BodiesHoldNoMoreMemoryThanTheLimit) {
  TestSite site({.max_buffered_bytes = int64_t{2} << 20});
  std::vector<host::FileDescriptor> sending;
  for (int i = 0; i < 8; ++i) {
    sending.push_back(HttpDial(
        site.port(), "POST /length HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" +
                         std::string(600000, 'x')));
  }
  const auto num_closed = [&] {
    return std::count_if(sending.begin(), sending.end(),
                         [](const host::FileDescriptor& fd) { return HttpIsClosed(fd); });
  };
  EXPECT_TRUE(testing::Eventually([&] { return num_closed() >= 5; }, 30));
  EXPECT_EQ(HttpAsk(site.port(), HttpPost("/length", std::string(1000, 'x'))).body, "1000");
}

}  // namespace
}  // namespace tandem::http
