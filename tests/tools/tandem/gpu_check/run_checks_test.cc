#include "tools/tandem/gpu_check/run_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::gpu_check {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Check MakeCheck(const std::string& name, CheckResult result, bool is_needed = false) {
  return {.name = name,
          .title = name,
          .limit = absl::Minutes(1),
          .run = [result](absl::Time) { return result; },
          .is_needed = is_needed};
}

std::vector<Outcome> OutcomesOf(const std::vector<Ran>& ran) {
  std::vector<Outcome> outcomes;
  for (const Ran& check : ran) outcomes.push_back(check.result.outcome);
  return outcomes;
}

TEST(RunChecks, AFailureIsNamedAndEndsNoOtherCheck) {
  const std::vector<Ran> ran = RunChecks(
      {MakeCheck("one", {}), MakeCheck("two", Failed("wrong")), MakeCheck("three", {})}, {});

  EXPECT_THAT(OutcomesOf(ran), ElementsAre(Outcome::kPassed, Outcome::kFailed, Outcome::kPassed));
  EXPECT_THAT(StatusOf(ran),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("1 check of 3 failed: two"), Not(HasSubstr("three")))));
}

TEST(RunChecks, SkippedChecksAreNoFailure) {
  EXPECT_OK(StatusOf(RunChecks({MakeCheck("one", {}), MakeCheck("two", Skipped("one GPU"))}, {})));
}

TEST(RunChecks, WithoutANeededCheckTheOthersAreSkipped) {
  const std::vector<Ran> ran =
      RunChecks({MakeCheck("facts", Failed("no GPU"), true), MakeCheck("two", {})}, {});

  EXPECT_THAT(OutcomesOf(ran), ElementsAre(Outcome::kFailed, Outcome::kSkipped));
  EXPECT_THAT(ran[1].result.reason, HasSubstr("'facts' failed"));
  EXPECT_FALSE(StatusOf(ran).ok());
}

TEST(RunChecks, AnExceptionIsAFailure) {
  Check check = MakeCheck("one", {});
  check.run = [](absl::Time) -> CheckResult { throw std::runtime_error("out of memory"); };

  const std::vector<Ran> ran = RunChecks({check}, {});

  EXPECT_EQ(ran[0].result.outcome, Outcome::kFailed);
  EXPECT_EQ(ran[0].result.reason, "out of memory");
}

TEST(RunChecks, ACheckGetsWhatIsLeftOfTheTime) {
  const absl::Time now = absl::Now();
  std::vector<absl::Time> deadlines;
  Check check = MakeCheck("one", {});
  check.run = [&](absl::Time deadline) {
    deadlines.push_back(deadline);
    return CheckResult();
  };
  RunChecks({check}, {});
  RunChecks({check}, {.deadline = now + absl::Seconds(20)});

  ASSERT_EQ(deadlines.size(), 2);
  EXPECT_GE(deadlines[0], now + absl::Minutes(1));
  EXPECT_EQ(deadlines[1], now + absl::Seconds(20));
}

TEST(RunChecks, OneThatWouldBeginBehindTheDeadlineFails) {
  const std::vector<Ran> ran =
      RunChecks({MakeCheck("one", {})}, {.deadline = absl::Now() - absl::Seconds(1)});

  EXPECT_EQ(ran[0].result.outcome, Outcome::kFailed);
  EXPECT_THAT(ran[0].result.reason, HasSubstr("time limit"));
}

TEST(RunChecks, AnInterruptSkipsWhatHasNotBegun) {
  bool interrupted = false;
  RunChecksOptions options;
  options.interrupted = [&] { return interrupted; };
  options.ended = [&](const std::vector<Ran>&) { interrupted = true; };

  EXPECT_THAT(OutcomesOf(RunChecks({MakeCheck("one", {}), MakeCheck("two", {})}, options)),
              ElementsAre(Outcome::kPassed, Outcome::kSkipped));
}

TEST(RunChecks, TellsOfEachCheckBeforeAndAfterIt) {
  std::string told;
  RunChecksOptions options;
  options.begins = [&](const Check& check, size_t index) {
    told += std::to_string(index) + check.name + " ";
  };
  options.ended = [&](const std::vector<Ran>& ran) { told += std::to_string(ran.size()) + ". "; };
  RunChecks({MakeCheck("a", {}), MakeCheck("b", {})}, options);

  EXPECT_EQ(told, "0a 1. 1b 2. ");
}

}  // namespace
}  // namespace tandem::gpu_check
