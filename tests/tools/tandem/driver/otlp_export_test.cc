#include "tools/tandem/driver/otlp_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "common/http/server.h"
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
class Collector final : private http::Handler {
 public:
  explicit Collector(int code) : code_(code) {
    auto server = http::Server::Start({.listen = "127.0.0.1:0"}, *this);
    EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
  }

  std::string endpoint() const { return "http://" + server_->address(); }
  std::string body;

 private:
  http::Admission Admit(const http::Request& head) override {
    http::Admission admission;
    admission.max_body_bytes = size_t{1} << 20;
    if (head.path != "/v1/traces") admission.refusal = Refuse({404, "NOT_FOUND", head.path});
    return admission;
  }
  void Serve(http::Exchange& exchange) override {
    body = exchange.request().body;
    exchange.Reply({.code = code_, .content_type = "application/json", .body = "{}"});
  }

  const int code_;
  std::unique_ptr<http::Server> server_;
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
