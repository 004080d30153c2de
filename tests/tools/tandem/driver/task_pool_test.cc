#include "tools/tandem/driver/task_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <utility>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "tests/support/status_matchers.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

void NoError(const absl::Status& status) { ADD_FAILURE() << status; }

TEST(TaskPool, RunsAsManyTasksAtOnceAsItHasThreads) {
  TaskPool pool(3, NoError);
  auto* met = new absl::Barrier(4);  // the last to leave deletes it
  for (int i = 0; i < 3; ++i) {
    pool.Add([met] {
      if (met->Block()) delete met;
    });
  }
  if (met->Block()) delete met;  // returns only if all three run
}

TEST(TaskPool, OneThreadRunsTasksInTheirOrder) {
  int last = 0;
  absl::Notification done;
  TaskPool pool(1, NoError);
  for (int i = 1; i <= 100; ++i) {
    pool.Add([&, i] {
      EXPECT_EQ(last, i - 1);
      last = i;
      if (i == 100) done.Notify();
    });
  }
  EXPECT_TRUE(done.WaitForNotificationWithTimeout(absl::Minutes(1)));
}

TEST(TaskPool, StopWaitsForWhatRunsAndLaterTasksAreDiscarded) {
  std::atomic<int> num_run{0};
  absl::Notification begun, release;
  TaskPool pool(1, NoError);
  pool.Add([&] {
    begun.Notify();
    release.WaitForNotificationWithTimeout(absl::Minutes(1));
    ++num_run;
  });
  ASSERT_TRUE(begun.WaitForNotificationWithTimeout(absl::Minutes(1)));
  std::thread stop([&] { pool.Stop(); });
  release.Notify();
  stop.join();
  EXPECT_EQ(num_run, 1);
  pool.Add([&] { ++num_run; });
  EXPECT_EQ(num_run, 1);
}

TEST(TaskPool, HandsOverWhatATaskThrowsAndRunsTheNext) {
  absl::Notification done;
  absl::Status error;
  TaskPool pool(1, [&error](absl::Status status) { error = std::move(status); });

  pool.Add([] { throw std::runtime_error("the task broke"); });
  pool.Add([&done] { done.Notify(); });

  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Minutes(1)));
  EXPECT_THAT(error, StatusIs(absl::StatusCode::kInternal, HasSubstr("the task broke")));
}

}  // namespace
}  // namespace tandem::driver
