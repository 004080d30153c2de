// A trainer rank that stands still while the update fails for another reason: the update's deadline
// holds for it too, though the trainer's collectives may take longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <tuple>

#include "tests/fault/update_fleet.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(4);
constexpr absl::Duration kGrace = absl::Seconds(8);  // the actors' collectives have 30 s
constexpr absl::Duration kSoon = absl::Seconds(20);

class StandingRank : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};
INSTANTIATE_TEST_SUITE_P(Transports, StandingRank,
                         ::testing::Combine(::testing::Values("broadcast", "reshard"),
                                            ::testing::Values("gloo", "shared_memory")),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

TEST_P(StandingRank, DoesNotOutlastTheDeadlineOfAnUpdateThatCouldNotBegin) {
  const auto& [transport, backend] = GetParam();
  UpdateFleet fleet(UPDATE_ACTOR,
                    {.transport = transport, .update_timeout = kTimeout, .backend = backend});
  ASSERT_OK(fleet.Start());
  ASSERT_OK(fleet.Prepare(1));
  fleet.Publish(1);
  ASSERT_OK(fleet.Result(fleet.driver(), "answered", kSoon));
  ASSERT_OK(fleet.Prepare(2));
  fleet.rank(1).Signal(SIGSTOP);
  fleet.rollout(0).Kill();
  fleet.Publish(2);
  EXPECT_THAT(std::string(fleet.Result(fleet.driver(), "answered", kTimeout + kGrace).message()),
              HasSubstr("replica r0, rank 0"));
  ASSERT_OK_AND_ASSIGN(const int64_t live, fleet.LiveVersion(1, kSoon));
  EXPECT_EQ(live, 1);
}

}  // namespace
}  // namespace tandem::testing
