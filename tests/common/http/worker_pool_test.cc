#include "common/http/worker_pool.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"

namespace tandem::http {
namespace {

TEST(WorkerPool, RunsAsManyTasksAtOnceAsItHasThreads) {
  WorkerPool pool(3);
  // Each waits for the others.
  auto* const together = new absl::Barrier(3);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(pool.Submit([together] {
      if (together->Block()) delete together;
    }));
  }
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
