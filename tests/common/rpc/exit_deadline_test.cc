#include "common/rpc/exit_deadline.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem::rpc {
namespace {

TEST(ExitDeadlineDeathTest, EndsAProcessThatDoesNotEndByItself) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const ExitDeadline deadline(absl::Milliseconds(20));
        while (true) pause();
      },
      ::testing::ExitedWithCode(1), "the process does not end by itself.*after=20ms");
}

void WorkOnAfterASignal() {
  TerminationSignal termination;
  const TerminationDeadline deadline(termination, absl::Milliseconds(20));
  kill(getpid(), SIGTERM);
  while (true) pause();
}

TEST(TerminationDeadlineDeathTest, EndsAProcessThatWorksOnAfterASignal) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(WorkOnAfterASignal(), ::testing::ExitedWithCode(1),
              "the process does not end by itself.*after=20ms");
}

void EndInTime() {
  TerminationSignal termination;
  {
    const TerminationDeadline deadline(termination, absl::Milliseconds(20));
    termination.Trigger(SIGTERM);
  }
  absl::SleepFor(absl::Milliseconds(200));
  std::_Exit(0);
}

TEST(TerminationDeadlineDeathTest, IsCalledOffWhenItsScopeEnds) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(EndInTime(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tandem::rpc
