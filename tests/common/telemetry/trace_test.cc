#include "common/telemetry/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

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
