#include "common/rpc/termination_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace tandem::rpc {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);

TEST(TerminationSignal, TurnsASignalIntoAnEvent) {
  TerminationSignal termination;
  EXPECT_EQ(termination.received(), 0);
  absl::Notification called;
  termination.OnSignal([&] { called.Notify(); });
  kill(getpid(), SIGTERM);
  EXPECT_EQ(termination.WaitFor(kTimeout), SIGTERM);
  EXPECT_TRUE(called.WaitForNotificationWithTimeout(kTimeout));
  bool late = false;
  termination.OnSignal([&] { late = true; });
  EXPECT_TRUE(late);
}

TEST(TerminationSignal, CanBeTriggered) {
  TerminationSignal termination;
  EXPECT_EQ(termination.WaitFor(absl::ZeroDuration()), 0);
  termination.Trigger(SIGINT);
  termination.Trigger(SIGTERM);
  EXPECT_EQ(termination.Wait(), SIGINT);
}

TEST(TerminationSignalDeathTest, ASecondSignalEndsTheProcessAtOnce) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        TerminationSignal termination;
        kill(getpid(), SIGTERM);
        termination.Wait();
        kill(getpid(), SIGINT);
        while (true) pause();
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace tandem::rpc
