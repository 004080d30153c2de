// A rollout that reads the version from another one, and something happens to either of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <tuple>

#include "tests/fault/fault_matrix.h"
#include "tests/fault/update_fleet.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(14);  // half of it for the stream
constexpr absl::Duration kGrace = absl::Seconds(6);
constexpr absl::Duration kSoon = absl::Seconds(20);
constexpr int kSource = 0, kReader = 1;

class StreamFault : public ::testing::TestWithParam<std::tuple<int, Fault>> {};
INSTANTIATE_TEST_SUITE_P(Cells, StreamFault,
                         ::testing::Combine(::testing::Values(kSource, kReader),
                                            ::testing::Values(Fault::kKilled, Fault::kStopped,
                                                              Fault::kCut, Fault::kDelayed,
                                                              Fault::kLossy)),
                         [](const auto& info) {
                           return (std::get<0>(info.param) == kSource ? "source_" : "reader_") +
                                  Name(std::get<1>(info.param));
                         });

TEST_P(StreamFault, OfTheSourceIsMadeUpForAndOfTheReaderIsNamed) {
  const auto& [who, fault] = GetParam();
  UpdateFleet fleet(UPDATE_ACTOR, {.transport = "reshard", .update_timeout = kTimeout});
  const auto expect_whole = [&](int rollout, const ::testing::Matcher<int64_t>& version) {
    ASSERT_OK_AND_ASSIGN(const int64_t live, fleet.LiveVersion(rollout, kSoon));
    EXPECT_THAT(live, version) << "rollout " << rollout;
  };
  ASSERT_OK(fleet.Start());
  ASSERT_OK(fleet.Prepare(1));
  fleet.Publish(1);
  ASSERT_OK(fleet.Result(fleet.driver(), "answered", kSoon));
  ASSERT_OK(fleet.Result(fleet.rank(1), "followed", kSoon));

  fleet.rollout(kReader).Kill();
  ASSERT_OK(fleet.RestartRollout(kReader));
  ActorProcess& reader = fleet.rollout(kReader);
  reader.Send("hold transfer");
  ASSERT_TRUE(reader.Await("hold", kSoon).has_value());
  fleet.Follow();
  fleet.Publish(1);
  ASSERT_TRUE(reader.Await("at", kSoon).has_value());
  ActorProcess& victim = fleet.rollout(who);
  const bool passes = fault == Fault::kDelayed || fault == Fault::kLossy;
  if (fault == Fault::kKilled) {
    victim.Kill();
  } else if (fault == Fault::kStopped) {
    victim.Signal(SIGSTOP);
  } else {
    victim.Send(fault == Fault::kCut                 ? "fault cut"
                : passes && fault == Fault::kDelayed ? "fault delay"
                                                     : "fault loss");
    ASSERT_TRUE(victim.Await("fault", kSoon).has_value());
  }
  if (who == kSource || passes || fault == Fault::kCut) reader.Send("go");

  const absl::Status result = fleet.Result(fleet.driver(), "answered", kTimeout + kGrace);
  if (who == kSource || passes) {
    EXPECT_OK(result) << fleet.log();
    expect_whole(kReader, 1);
  } else {
    EXPECT_THAT(std::string(result.message()), HasSubstr("replica r1, rank 0"));
  }
  ASSERT_OK(fleet.Result(fleet.rank(1), "followed", kSoon));
  if (who == kReader) expect_whole(kSource, 1);

  if (fault == Fault::kKilled) {
    ASSERT_OK(fleet.RestartRollout(who));
  } else if (fault == Fault::kStopped) {
    victim.Signal(SIGCONT);
    reader.Send("go");
  } else {
    victim.Send("fault none");
  }
  expect_whole(who, AnyOf(-1, 1));
  ASSERT_OK(fleet.Prepare(2));
  fleet.Publish(2);
  EXPECT_OK(fleet.Result(fleet.driver(), "answered", kTimeout + kGrace)) << fleet.log();
  expect_whole(kSource, 2);
  expect_whole(kReader, 2);
}

}  // namespace
}  // namespace tandem::testing
