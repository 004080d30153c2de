#include "common/telemetry/trace_context.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace tandem::telemetry {
namespace {

// The example of the standard (W3C Trace Context, section 3.2.2).
constexpr char kExample[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceContext, ReadsAndWritesTheStandardsExample) {
  const TraceContext context = ParseTraceparent(kExample);
  ASSERT_TRUE(context.valid());
  EXPECT_EQ(context.TraceId(), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(SpanId(context.span), "00f067aa0ba902b7");
  EXPECT_EQ(ToTraceparent(context), kExample);
}

TEST(TraceContext, LaterVersionsMayAddParts) {
  EXPECT_TRUE(
      ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more").valid());
  EXPECT_FALSE(
      ParseTraceparent("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01more").valid());
}

TEST(TraceContext, RefusesWhatIsNone) {
  const std::string good = kExample;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = 'G';
    EXPECT_FALSE(ParseTraceparent(bad).valid()) << bad;
    EXPECT_FALSE(ParseTraceparent(good.substr(0, i)).valid()) << i;
  }
  EXPECT_FALSE(ParseTraceparent(good + "-more").valid());
  EXPECT_FALSE(ParseTraceparent("ff" + good.substr(2)).valid());
  EXPECT_FALSE(ParseTraceparent("00-00000000000000000000000000000000-00f067aa0ba902b7-01").valid());
  EXPECT_FALSE(ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01").valid());
  EXPECT_EQ(ToTraceparent({}), "");
}

TEST(TraceContext, IsOfTheThreadAndOfTheScope) {
  EXPECT_FALSE(CurrentTraceContext().valid());
  const TraceContext outer = NewTrace();
  {
    const ScopedTraceContext scope(outer);
    EXPECT_EQ(CurrentTraceContext(), outer);
    {
      const ScopedTraceContext none{TraceContext{}};
      EXPECT_FALSE(CurrentTraceContext().valid());
    }
    std::thread([] { EXPECT_FALSE(CurrentTraceContext().valid()); }).join();
    EXPECT_EQ(CurrentTraceContext(), outer);
  }
  EXPECT_FALSE(CurrentTraceContext().valid());
}

TEST(TraceContext, IdsDoNotRepeat) {
  std::set<uint64_t> ids;
  for (int i = 0; i < 10000; ++i) ids.insert(NewSpanId());
  EXPECT_EQ(ids.size(), 10000);
}

}  // namespace
}  // namespace tandem::telemetry
