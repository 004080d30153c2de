#include "common/telemetry/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::telemetry {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  TraceTest()
      : path_(::testing::TempDir() + "tandem_trace_" + std::to_string(getpid()) + ".json") {}
  ~TraceTest() override {
    (void)StopTrace();
    std::filesystem::remove(path_);
  }

  // The spans of a written trace, without metadata.
  static std::vector<nlohmann::json> Spans(const std::string& path) {
    std::ifstream file(path);
    const nlohmann::json trace = nlohmann::json::parse(file);
    std::vector<nlohmann::json> out;
    for (const auto& event : trace["traceEvents"]) {
      if (event["ph"] == "X") out.push_back(event);
    }
    return out;
  }

  const std::string path_;
};

TEST_F(TraceTest, SpansAreWrittenWithTheirArgumentsAndNesting) {
  StartTrace({.path = path_, .process_name = "trainer \"0\""});
  {
    ScopedSpan outer("step", {{"step", 7}});
    ScopedSpan inner("forward", {{"unit", "layers.0"}, {"tokens", 12}});
  }
  ASSERT_OK(WriteTrace());
  const auto spans = Spans(path_);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["name"], "forward");
  EXPECT_EQ(spans[0]["args"], (nlohmann::json{{"unit", "layers.0"}, {"tokens", 12}}));
  EXPECT_EQ(spans[1]["name"], "step");
  EXPECT_LE(spans[1]["ts"], spans[0]["ts"]);
  EXPECT_GE(spans[1]["dur"], spans[0]["dur"]);
}

TEST_F(TraceTest, SpansOfATraceNameTheirParents) {
  StartTrace({.path = path_, .process_name = "driver"});
  const TraceContext root = NewTrace();
  const absl::Time start = absl::Now();
  {
    const ScopedTraceContext scope(root);
    ScopedSpan outer("outer");
    const TraceContext handed_over = CurrentTraceContext();
    EXPECT_EQ(handed_over.TraceId(), root.TraceId());
    std::thread([&] {
      const ScopedTraceContext taken(handed_over);
      ScopedSpan inner("inner");
    }).join();
  }
  { ScopedSpan alone("alone"); }
  RecordSpan("root", start, root, 0, {{"step", 1}});
  ASSERT_OK(WriteTrace());
  const auto spans = Spans(path_);
  ASSERT_EQ(spans.size(), 4u);
  const auto& inner = spans[0]["args"];
  const auto& outer = spans[1]["args"];
  EXPECT_EQ(inner["trace_id"], root.TraceId());
  EXPECT_EQ(inner["parent_id"], outer["span_id"]);
  EXPECT_EQ(outer["parent_id"], SpanId(root.span));
  EXPECT_FALSE(spans[2].contains("args"));
  EXPECT_EQ(spans[3]["args"]["span_id"], SpanId(root.span));
  EXPECT_EQ(spans[3]["args"]["step"], 1);
  EXPECT_FALSE(spans[3]["args"].contains("parent_id"));
  EXPECT_GE(spans[3]["dur"], spans[1]["dur"]);
}

TEST_F(TraceTest, NothingIsRecordedOrWrittenWhenOff) {
  { ScopedSpan span("unseen"); }
  EXPECT_OK(WriteTrace());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(TraceTest, ThreadsKeepTheirOwnRows) {
  StartTrace({.path = path_});
  { ScopedSpan span("here"); }
  std::thread([] {
    NameTraceThread("engine");
    ScopedSpan span("there");
  }).join();
  ASSERT_OK(StopTrace());
  const auto spans = Spans(path_);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
}

TEST_F(TraceTest, SpansBeyondTheBoundAreCounted) {
  StartTrace({.path = path_, .max_spans = 2});
  for (int i = 0; i < 5; ++i) ScopedSpan span("s");
  ASSERT_OK(StopTrace());
  std::ifstream file(path_);
  EXPECT_EQ(nlohmann::json::parse(file)["otherData"]["dropped_spans"], "3");
}

TEST_F(TraceTest, MergingLeavesOutWhatIsNoTrace) {
  StartTrace({.path = path_});
  { ScopedSpan span("kept"); }
  ASSERT_OK(StopTrace());
  const std::string broken = path_ + ".broken";
  std::ofstream(broken) << "{\"traceEvents\": [";
  const std::string merged = path_ + ".merged";
  ASSERT_OK(MergeTraces({path_, broken, path_ + ".absent", path_}, merged));
  EXPECT_EQ(Spans(merged).size(), 2u);
  std::filesystem::remove(broken);
  std::filesystem::remove(merged);
}

}  // namespace
}  // namespace tandem::telemetry
