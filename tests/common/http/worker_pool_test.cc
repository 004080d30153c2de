#include "common/http/worker_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace tandem::http {
namespace {

TEST(WorkerPool, RunsAsManyTasksAtOnceAsItHasThreads) {
  constexpr int kTasks = 3;
  WorkerPool pool(kTasks);
  auto* const together = new absl::Barrier(kTasks);
  absl::BlockingCounter ended(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    ASSERT_TRUE(pool.Submit([&ended, together] {
      // Each waits for the others.
      if (together->Block()) delete together;
      ended.DecrementCount();
    }));
  }
  // Stop() drops what has not begun.
  ended.Wait();
  pool.Stop();
}

TEST(WorkerPool, ATaskThatThrowsEndsNothing) {
  WorkerPool pool(1);
  absl::Notification done;
  ASSERT_TRUE(pool.Submit([] { throw std::runtime_error("no"); }));
  ASSERT_TRUE(pool.Submit([] { throw 1; }));
  ASSERT_TRUE(pool.Submit([&] { done.Notify(); }));
  done.WaitForNotification();
  pool.Stop();
  EXPECT_FALSE(pool.Submit([] {}));
}

}  // namespace
}  // namespace tandem::http
