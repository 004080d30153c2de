#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <prometheus/collectable.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/http/host_policy.h"
#include "common/http/limits.h"
#include "common/metrics/metric_family.h"
#include "common/metrics/metrics_server.h"
#include "tests/support/http_clients.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace tandem::metrics {
namespace {

using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpAsk;
using ::tandem::testing::HttpCodeOf;
using ::tandem::testing::HttpDial;
using ::tandem::testing::HttpGet;
using ::tandem::testing::HttpSend;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

class Fixed final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    auto labelled = EmptyFamily("tandem_value", "By name.", prometheus::MetricType::Gauge);
    AddGauge(labelled, 2.5, {{"name", "a \"quoted\" one"}});
    return {GaugeFamily("tandem_gauge", "A gauge.", -1),
            CounterFamily("tandem_total", "Events.", 7), std::move(labelled),
            StateFamily("tandem_state", "States.", {"up", "down"}, "down")};
  }
};

int PortOf(const MetricsServer& server) {
  return std::stoi(server.address().substr(server.address().rfind(':') + 1));
}

TEST(MetricsServer, AnswersWithWhatWasAddedAndWithTheProcess) {
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      MetricsServer::Start("127.0.0.1:0", {.role = "test", .version = "1.2", .rank = 3}));
  server->Add(std::make_shared<Fixed>());

  const HttpAnswer answer = HttpGet(PortOf(*server), "/metrics");

  EXPECT_EQ(answer.code, 200);
  for (const char* line : {"tandem_gauge -1\n", "tandem_total 7\n",
                           "tandem_value{name=\"a \\\"quoted\\\" one\"} 2.5\n",
                           "tandem_state{state=\"up\"} 0\n", "tandem_state{state=\"down\"} 1\n",
                           "tandem_build_info{role=\"test\",version=\"1.2\",rank=\"3\"} 1\n",
                           "# TYPE tandem_total counter\n", "process_resident_memory_bytes ",
                           "process_open_fds ", "process_cpu_seconds_total "}) {
    EXPECT_THAT(answer.body, HasSubstr(line));
  }
  EXPECT_EQ(HttpGet(PortOf(*server), "/etc/passwd").code, 404);
}

class Throwing final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    throw std::runtime_error("no value");
  }
};

TEST(MetricsServer, ACollectorThatThrowsEndsNothing) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  server->Add(std::make_shared<Throwing>());
  EXPECT_EQ(HttpGet(PortOf(*server), "/metrics").code, 500);
  EXPECT_EQ(HttpGet(PortOf(*server), "/metrics").code, 500);
}

TEST(MetricsServer, AWebPageOfAnotherSiteReadsNothing) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  const auto ask = [&](const std::string& method, const std::string& headers) {
    return HttpAsk(PortOf(*server), method + " /metrics HTTP/1.1\r\n" + headers + "\r\n\r\n");
  };
  EXPECT_EQ(ask("GET", "Host: 127.0.0.1:9400").code, 200);
  EXPECT_EQ(ask("GET", "Host: rebound.example").code, 421);
  EXPECT_EQ(ask("GET", "Host: localhost\r\nOrigin: http://evil.example").code, 403);
  const HttpAnswer preflight =
      ask("OPTIONS",
          "Host: localhost\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: GET");
  EXPECT_EQ(preflight.code, 403);
  EXPECT_THAT(preflight.head, Not(HasSubstr("Access-Control")));
  EXPECT_EQ(ask("POST", "Host: localhost").code, 405);
}

TEST(MetricsServer, AnAllowedNameIsAnswered) {
  setenv(http::kAllowHostVariable, "metrics.example.org", 1);
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  unsetenv(http::kAllowHostVariable);
  EXPECT_EQ(
      HttpAsk(PortOf(*server), "GET /metrics HTTP/1.1\r\nHost: metrics.example.org\r\n\r\n").code,
      200);
}

TEST(MetricsServer, ClientsThatWaitHoldUpNoScrape) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  std::vector<host::FileDescriptor> waiting;
  for (int i = 0; i < 200; ++i) {
    waiting.push_back(HttpDial(PortOf(*server), i % 2 == 0 ? "" : "GET /metrics HTTP/1.1\r\nHo"));
  }
  EXPECT_EQ(HttpGet(PortOf(*server), "/metrics").code, 200);
}

TEST(MetricsServer, AHeadThatTricklesInIsCutOff) {
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  const host::FileDescriptor fd = HttpDial(PortOf(*server), "GET /metrics HTTP/1.1\r\nX: ");
  const absl::Time begin = absl::Now();
  // A byte whenever there is nothing to read for a moment: each comes soon after the last.
  pollfd state{.fd = fd.get(), .events = POLLIN, .revents = 0};
  while (poll(&state, 1, 100) == 0 && absl::Now() - begin < absl::Minutes(2)) HttpSend(fd, "x");
  EXPECT_EQ(HttpCodeOf(fd), 408);
  EXPECT_GE(absl::Now() - begin, http::Limits().head_timeout - absl::Seconds(1));
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

TEST(MetricsServer, SaysWhyItCannotListen) {
  EXPECT_THAT(MetricsServer::Start("9400", {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected HOST:PORT")));
  EXPECT_THAT(MetricsServer::Start("127.0.0.1:99999", {}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected HOST:PORT")));
  ASSERT_OK_AND_ASSIGN(const auto server, MetricsServer::Start("127.0.0.1:0", {}));
  EXPECT_THAT(MetricsServer::Start(server->address(), {}).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(server->address())));
}

TEST(ProcessMetrics, LeavesOutARankThatIsNone) {
  const ProcessMetrics metrics({.role = "driver", .version = "1"});
  for (const auto& family : metrics.Collect()) {
    if (family.name != "tandem_build_info") continue;
    ASSERT_EQ(family.metric.size(), 1);
    for (const auto& label : family.metric[0].label) EXPECT_NE(label.name, "rank");
  }
}

}  // namespace
}  // namespace tandem::metrics
