#include "tools/tandem/driver/otlp_export.h"

#include <civetweb.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::HasSubstr;

json Trace() {
  return {{"traceEvents",
           {{{"ph", "M"}, {"name", "process_name"}, {"pid", 7}, {"args", {{"name", "driver"}}}},
            {{"ph", "X"},
             {"name", "step 1"},
             {"pid", 7},
             {"ts", 1000.5},
             {"dur", 20.25},
             {"args",
              {{"step", 1},
               {"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"},
               {"span_id", "00f067aa0ba902b7"}}}},
            {{"ph", "X"},
             {"name", "publish"},
             {"pid", 8},
             {"ts", 1001.0},
             {"dur", 2.0},
             {"args",
              {{"trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"},
               {"span_id", "00f067aa0ba902b8"},
               {"parent_id", "00f067aa0ba902b7"}}}},
            {{"ph", "X"}, {"name", "of no trace"}, {"pid", 8}, {"ts", 1.0}, {"dur", 2.0}}}}};
}

TEST(Otlp, SpansKeepTheirIdsTimesAndProcesses) {
  const std::vector<json> requests = ToOtlp(Trace(), 100);
  ASSERT_EQ(requests.size(), 1u);
  const json& resources = requests[0]["resourceSpans"];
  ASSERT_EQ(resources.size(), 2u);
  EXPECT_EQ(resources[0]["resource"]["attributes"][1]["value"]["stringValue"], "driver");
  const json& step = resources[0]["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(step["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(step["startTimeUnixNano"], "1000500");
  EXPECT_EQ(step["endTimeUnixNano"], "1020750");
  EXPECT_FALSE(step.contains("parentSpanId"));
  EXPECT_EQ(step["attributes"][0], (json{{"key", "step"}, {"value", {{"intValue", "1"}}}}));
  EXPECT_EQ(resources[1]["scopeSpans"][0]["spans"].size(), 1u);
  EXPECT_EQ(resources[1]["scopeSpans"][0]["spans"][0]["parentSpanId"], "00f067aa0ba902b7");
  EXPECT_EQ(ToOtlp(Trace(), 1).size(), 2u);
}

// Takes what is posted to it.
class Collector {
 public:
  explicit Collector(int code) : code_(code) {
    mg_init_library(0);
    const char* options[] = {"listening_ports", "127.0.0.1:0", "num_threads", "1", nullptr};
    context_ = mg_start(nullptr, nullptr, options);
    mg_set_request_handler(
        context_, "/v1/traces",
        [](mg_connection* connection, void* self) {
          return static_cast<Collector*>(self)->Take(connection);
        },
        this);
  }
  ~Collector() { mg_stop(context_); }

  std::string endpoint() const {
    mg_server_port port;
    mg_get_server_ports(context_, 1, &port);
    return "http://127.0.0.1:" + std::to_string(port.port);
  }
  std::string body;

 private:
  int Take(mg_connection* connection) {
    char buffer[4096];
    for (int got; (got = mg_read(connection, buffer, sizeof(buffer))) > 0;)
      body.append(buffer, got);
    mg_printf(connection, "HTTP/1.1 %d X\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
              code_);
    return code_;
  }

  const int code_;
  mg_context* context_ = nullptr;
};

TEST(Otlp, IsPostedToTheCollector) {
  const TempFolder folder;
  const std::string path = folder.Write("trace.json", Trace().dump());
  Collector collector(200);
  ASSERT_OK_AND_ASSIGN(const int64_t count, ExportTrace(path, collector.endpoint() + "/"));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(json::parse(collector.body)["resourceSpans"].size(), 2u);
}

TEST(Otlp, SaysWhyTheCollectorDoesNotTakeIt) {
  const TempFolder folder;
  const std::string path = folder.Write("trace.json", Trace().dump());
  const Collector collector(429);
  EXPECT_THAT(ExportTrace(path, collector.endpoint()).status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("HTTP 429")));
  EXPECT_THAT(ExportTrace(path, "http://127.0.0.1:1").status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1:1")));
  EXPECT_THAT(ExportTrace(path, "grpc://collector:4317").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected http://")));
}

}  // namespace
}  // namespace tandem::driver
