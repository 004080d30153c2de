#include "tools/tandem/driver/driver_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DriverState, RefusesVersionsOutOfRangeAndNamesTheCheckpoint) {
  for (const int64_t version : {int64_t{-1}, int64_t{1} << 53, std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()}) {
    v1::DriverState of_generation;
    of_generation.set_step(1);
    of_generation.mutable_ahead()->set_policy_version(version);
    v1::DriverState of_span;
    of_span.set_step(1);
    of_span.mutable_ahead()
        ->add_groups()
        ->add_completions()
        ->add_version_spans()
        ->set_policy_version(version);
    for (const v1::DriverState& state : {of_generation, of_span}) {
      EXPECT_THAT(ParseDriverState(state.SerializeAsString(), "/runs/a/checkpoints/step-1"),
                  StatusIs(absl::StatusCode::kOutOfRange,
                           AllOf(HasSubstr("step-1"), HasSubstr("9007199254740991"))));
    }
  }
}

TEST(DriverState, KeepsTheOriginOfSamples) {
  Completion completion;
  common::v1::VersionSpan& span = completion.version_spans.emplace_back();
  span.set_policy_version(4);
  span.set_incarnation(7);
  const Completion restored = FromProto(ToProto(completion));
  ASSERT_EQ(restored.version_spans.size(), 1);
  EXPECT_EQ(restored.version_spans[0].incarnation(), 7);
}

}  // namespace
}  // namespace tandem::driver
