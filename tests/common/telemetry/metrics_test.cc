#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "common/telemetry/metric_family.h"
#include "common/telemetry/metrics_server.h"
#include "tests/support/http_get.h"
#include "tests/support/status_matchers.h"

namespace tandem::telemetry {
namespace {

using ::tandem::testing::HttpAnswer;
using ::tandem::testing::HttpGet;
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
}  // namespace tandem::telemetry
