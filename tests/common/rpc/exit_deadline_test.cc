#include "common/rpc/exit_deadline.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace tandem::rpc
