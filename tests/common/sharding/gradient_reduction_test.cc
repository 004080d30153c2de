#include "common/sharding/gradient_reduction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace tandem::sharding {
namespace {

using ::testing::ElementsAre;

// Writes down what happens to buffers; "u1" is the name of unit 1.
struct RecordingOps {
  struct Buffer {
    int64_t numel = 0;
    int bytes = 0;
  };
  using ElementType = int;  // bytes
  using Flight = GradientFlight<Buffer>;
  static constexpr int kFloat32 = 4;
  static constexpr int kBFloat16 = 2;

  Buffer Acquire(int64_t numel, int bytes) {
    ++in_use;
    events.push_back(absl::StrCat("acquire ", numel, "x", bytes));
    return {numel, bytes};
  }
  void Release(Buffer buffer) {
    --in_use;
    events.push_back(absl::StrCat("release ", buffer.numel, "x", buffer.bytes));
  }
  void Seal(int unit, Buffer&) { events.push_back(absl::StrCat("seal u", unit)); }
  void Round(const Buffer& from, Buffer& to) {
    events.push_back(absl::StrCat("round ", from.bytes, " to ", to.bytes));
  }
  void SortByRankOfHost(int unit, const Buffer& from, Buffer& to) {
    events.push_back(absl::StrCat("sort u", unit, ", ", from.bytes, " to ", to.bytes));
  }
  bool CanReduceIntoShard(int) const { return can_reduce_into_shard; }
  absl::Status Start(int unit, Leg leg, Flight&) {
    events.push_back(absl::StrCat("start u", unit, Over(leg)));
    return start;
  }
  absl::Status Wait(int unit, Leg leg) {
    events.push_back(absl::StrCat("wait u", unit, Over(leg)));
    return absl::OkStatus();
  }
  void AddSlices(int unit, Flight&) { events.push_back(absl::StrCat("add slices u", unit)); }
  void AddToShard(int unit, const Buffer&, bool holds_sum) {
    events.push_back(absl::StrCat(holds_sum ? "add to u" : "copy to u", unit));
  }
  void Arrived(int unit) { events.push_back(absl::StrCat("arrived u", unit)); }

  static const char* Over(Leg leg) {
    return leg == Leg::kAll ? "" : leg == Leg::kWithinHost ? " within" : " between";
  }
  std::vector<std::string> Take() { return std::exchange(events, {}); }

  bool can_reduce_into_shard = true;
  absl::Status start;
  int in_use = 0;
  std::vector<std::string> events;
};

using Reduction = GradientReduction<RecordingOps>;

// Three units over two ranks, which own 5, 6 and 7 elements of them.
std::vector<ReducedUnit> Units() {
  return {{ExtentOf(9, 2)}, {ExtentOf(12, 2)}, {ExtentOf(14, 2)}};
}

// Two units over two hosts of two ranks, which own 3 and 4 elements of them.
std::vector<ReducedUnit> UnitsOnHosts() { return {{ExtentOf(9, 4), 2}, {ExtentOf(16, 4), 2}}; }

TEST(GradientReduction, ReusesABufferOnceTheUnitBeforeHasArrived) {
  RecordingOps ops;
  Reduction reduction(ops, {}, Units());
  ASSERT_OK(reduction.Open(2));
  ASSERT_OK(reduction.Open(2));
  EXPECT_THAT(ops.Take(), ElementsAre("acquire 14x4"));
  ASSERT_OK(reduction.Complete(2));
  EXPECT_THAT(ops.Take(), ElementsAre("seal u2", "start u2"));
  ASSERT_OK(reduction.Open(1));
  EXPECT_THAT(ops.Take(), ElementsAre("wait u2", "release 14x4", "arrived u2", "acquire 12x4"));
  ASSERT_OK(reduction.Complete(1));
  ASSERT_OK(reduction.Finish());
  ASSERT_OK(reduction.Finish());
  EXPECT_THAT(ops.Take(),
              ElementsAre("seal u1", "start u1", "wait u1", "release 12x4", "arrived u1"));
  EXPECT_EQ(ops.in_use, 0);
}

TEST(GradientReduction, AddsThroughABufferToAShardThatHoldsASum) {
  RecordingOps ops;
  Reduction reduction(ops, {}, Units());
  ASSERT_OK(reduction.Complete(0));
  ASSERT_OK(reduction.Finish());
  EXPECT_TRUE(reduction.holds_sum(0));
  ops.Take();
  ASSERT_OK(reduction.Complete(0));
  ASSERT_OK(reduction.Finish());
  EXPECT_THAT(ops.Take(),
              ElementsAre("acquire 10x4", "seal u0", "acquire 5x4", "start u0", "wait u0",
                          "release 10x4", "add to u0", "release 5x4", "arrived u0"));
  reduction.Reset();
  ASSERT_OK(reduction.Complete(0));
  EXPECT_THAT(ops.Take(), ElementsAre("acquire 10x4", "seal u0", "start u0"));
}

TEST(GradientReduction, CopiesASumToAShardThatTheCollectiveCannotWrite) {
  RecordingOps ops;
  ops.can_reduce_into_shard = false;
  Reduction reduction(ops, {}, Units());
  ASSERT_OK(reduction.Complete(0));
  ops.Take();
  ASSERT_OK(reduction.Finish());
  EXPECT_THAT(ops.Take(),
              ElementsAre("wait u0", "release 10x4", "copy to u0", "release 5x4", "arrived u0"));
}

TEST(GradientReduction, RoundsTheSharedUnitOnceAllItsGradientsAreIn) {
  RecordingOps ops;
  Reduction reduction(ops, {.compute_type = 2, .reduce_type = 2, .shared_unit = 0}, Units());
  ASSERT_OK(reduction.Open(0));  // the head of a tied model
  ASSERT_OK(reduction.Open(1));  // a layer
  EXPECT_THAT(ops.Take(), ElementsAre("acquire 10x4", "acquire 12x2"));
  ASSERT_OK(reduction.Complete(1));
  ASSERT_OK(reduction.Complete(0));
  EXPECT_THAT(ops.Take(),
              ElementsAre("seal u1", "acquire 12x2", "start u1", "wait u1", "release 12x2",
                          "add slices u1", "release 12x2", "arrived u1", "seal u0", "acquire 10x2",
                          "round 4 to 2", "release 10x4", "acquire 10x2", "start u0"));
  ASSERT_OK(reduction.Finish());
  EXPECT_EQ(ops.in_use, 0);
}

TEST(GradientReduction, SendsTheSumsOfAHostWhileTheNextUnitTravelsWithinIt) {
  RecordingOps ops;
  Reduction reduction(ops, {.compute_type = 2}, UnitsOnHosts());
  ASSERT_OK(reduction.Complete(1));
  EXPECT_THAT(ops.Take(), ElementsAre("acquire 16x2", "seal u1", "acquire 16x2", "sort u1, 2 to 2",
                                      "release 16x2", "acquire 16x2", "start u1 within"));
  ASSERT_OK(reduction.Open(0));
  EXPECT_THAT(ops.Take(),
              ElementsAre("wait u1 within", "release 16x2", "acquire 8x4", "add slices u1",
                          "release 16x2", "start u1 between", "acquire 12x2"));
  ASSERT_OK(reduction.Complete(0));
  EXPECT_FALSE(reduction.holds_sum(1));
  ops.Take();
  ASSERT_OK(reduction.Finish());
  EXPECT_THAT(ops.Take(),
              ElementsAre("wait u0 within", "release 12x2", "acquire 6x4", "add slices u0",
                          "release 12x2", "wait u1 between", "release 8x4", "arrived u1",
                          "start u0 between", "wait u0 between", "release 6x4", "arrived u0"));
  EXPECT_TRUE(reduction.holds_sum(0));
  EXPECT_TRUE(reduction.holds_sum(1));
  EXPECT_EQ(ops.in_use, 0);
}

TEST(GradientReduction, RoundsTheSumsOfAHost) {
  RecordingOps ops;
  Reduction reduction(ops, {.compute_type = 4, .reduce_type = 2}, UnitsOnHosts());
  for (int pass = 0; pass < 2; ++pass) {
    ASSERT_OK(reduction.Complete(0));
    EXPECT_THAT(ops.Take(),
                ElementsAre("acquire 12x4", "seal u0", "acquire 12x2", "sort u0, 4 to 2",
                            "release 12x4", "acquire 12x2", "start u0 within"));
    ASSERT_OK(reduction.Finish());
    std::vector<std::string> expected = {
        "wait u0 within",  "release 12x2", "acquire 6x4",   "add slices u0", "release 12x2",
        "acquire 6x2",     "round 4 to 2", "release 6x4",   "acquire 6x2",   "start u0 between",
        "wait u0 between", "release 6x2",  "add slices u0", "release 6x2"};
    if (pass == 1) {
      expected.insert(expected.begin() + 9, "acquire 3x4");
      expected.insert(expected.end(), {"add to u0", "release 3x4"});
    }
    expected.push_back("arrived u0");
    EXPECT_EQ(ops.Take(), expected);
  }
  EXPECT_EQ(ops.in_use, 0);
}

TEST(GradientReduction, Float32GradientsCrossHostsAtOnce) {
  RecordingOps ops;
  Reduction reduction(ops, {}, UnitsOnHosts());
  ASSERT_OK(reduction.Complete(0));
  EXPECT_THAT(ops.Take(), ElementsAre("acquire 12x4", "seal u0", "start u0"));
}

TEST(GradientReduction, ReturnsTheErrorOfACollectiveThatDoesNotStart) {
  RecordingOps ops;
  ops.start = absl::UnavailableError("a peer is gone");
  Reduction reduction(ops, {}, Units());
  EXPECT_EQ(reduction.Complete(0), ops.start);
  EXPECT_FALSE(reduction.holds_sum(0));
}

}  // namespace
}  // namespace tandem::sharding
