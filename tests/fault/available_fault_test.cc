// Under update_policy "available" a rollout that fails does not hold the other one up.
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

constexpr absl::Duration kTimeout = absl::Seconds(12);  // half of it where one stands still
constexpr absl::Duration kGrace = absl::Seconds(10);
constexpr absl::Duration kSoon = absl::Seconds(20);

class AvailableFault : public ::testing::TestWithParam<std::tuple<Fault, Phase, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Cells, AvailableFault,
                         ::testing::Combine(::testing::Values(Fault::kKilled, Fault::kStopped,
                                                              Fault::kCut),
                                            ::testing::Values(Phase::kBegin, Phase::kTransfer,
                                                              Phase::kVerify, Phase::kCommit),
                                            ::testing::Values("reshard", "delta")),
                         [](const auto& info) {
                           return Name(std::get<0>(info.param)) + "_" +
                                  Name(std::get<1>(info.param)) + "_" + std::get<2>(info.param);
                         });

TEST_P(AvailableFault, OfOneRolloutIsToldAndTheOtherGetsTheVersion) {
  const auto& [fault, phase, transport] = GetParam();
  UpdateFleet fleet(UPDATE_ACTOR,
                    {.transport = transport, .update_timeout = kTimeout, .policy = "available"});
  const auto update = [&](int64_t version) {
    ASSERT_OK(fleet.Prepare(version));
    fleet.Publish(version);
  };
  const auto expect_whole = [&](int rollout, const ::testing::Matcher<int64_t>& version) {
    ASSERT_OK_AND_ASSIGN(const int64_t live, fleet.LiveVersion(rollout, kSoon));
    EXPECT_THAT(live, version) << "rollout " << rollout;
  };
  ASSERT_OK(fleet.Start());
  ASSERT_NO_FATAL_FAILURE(update(1));
  ASSERT_OK(fleet.Result(fleet.driver(), "answered", kSoon));
  ASSERT_OK(fleet.Result(fleet.rank(1), "followed", kSoon));

  ActorProcess& victim = fleet.rollout(0);
  victim.Send("hold " + Name(phase));
  ASSERT_TRUE(victim.Await("hold", kSoon).has_value());
  ASSERT_NO_FATAL_FAILURE(update(2));
  ASSERT_TRUE(victim.Await("at", kSoon).has_value());
  if (fault == Fault::kKilled) victim.Kill();
  if (fault == Fault::kStopped) victim.Signal(SIGSTOP);
  if (fault == Fault::kCut) {
    victim.Send("fault cut");
    ASSERT_TRUE(victim.Await("fault", kSoon).has_value());
    victim.Send("go");
  }
  const auto answered = fleet.driver().Await("answered", kTimeout + kGrace);
  ASSERT_TRUE(answered.has_value()) << fleet.log();
  EXPECT_OK(fleet.ReplicaResult(*answered, "r1")) << fleet.log();
  EXPECT_THAT(std::string(fleet.ReplicaResult(*answered, "r0").message()),
              HasSubstr("replica r0, rank 0"));
  ASSERT_OK(fleet.Result(fleet.rank(1), "followed", kSoon));
  expect_whole(1, 2);

  if (fault == Fault::kKilled) {
    ASSERT_OK(fleet.RestartRollout(0));
  } else if (fault == Fault::kStopped) {
    victim.Signal(SIGCONT);
    victim.Send("go");
  } else {
    victim.Send("fault none");
  }
  expect_whole(0, AnyOf(-1, 1, 2));
  ASSERT_NO_FATAL_FAILURE(update(3));
  const auto next = fleet.driver().Await("answered", kTimeout + kGrace);
  ASSERT_TRUE(next.has_value());
  EXPECT_OK(fleet.ReplicaResult(*next, "r0")) << fleet.log();
  EXPECT_OK(fleet.ReplicaResult(*next, "r1")) << fleet.log();
  expect_whole(0, 3);
  expect_whole(1, 3);
}

}  // namespace
}  // namespace tandem::testing
