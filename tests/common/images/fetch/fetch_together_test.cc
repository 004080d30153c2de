#include "common/images/fetch/fetch_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "common/http/worker_pool.h"

namespace tandem::images {
namespace {

TEST(FetchTogether, RunsAFewAtATimeAndAll) {
  constexpr size_t kCount = 3 * kMostFetches;
  http::WorkerPool pool(kCount);
  auto* const together = new absl::Barrier(static_cast<int>(kMostFetches));
  absl::Mutex mu;
  std::multiset<size_t> done;
  size_t num_running = 0, most = 0;
  EXPECT_TRUE(FetchTogether(kCount, pool, [&](size_t i) {
    {
      absl::MutexLock lock(&mu);
      most = std::max(most, ++num_running);
    }
    if (i < kMostFetches && together->Block()) delete together;  // each waits for the others
    absl::MutexLock lock(&mu);
    done.insert(i);
    --num_running;
    return true;
  }));
  EXPECT_EQ(done.size(), kCount);
  EXPECT_EQ(std::set<size_t>(done.begin(), done.end()).size(), kCount);
  EXPECT_EQ(most, kMostFetches);
}

TEST(FetchTogether, NeedsNoThreadOfThePool) {
  http::WorkerPool pool(1);
  pool.Stop();
  std::vector<size_t> done;
  const auto fetch = [&](size_t i) {
    done.push_back(i);
    return i < 2;
  };
  EXPECT_FALSE(FetchTogether(5, pool, fetch));
  EXPECT_THAT(done, ::testing::ElementsAre(0, 1, 2));  // none behind the one that failed
  EXPECT_TRUE(FetchTogether(0, pool, fetch));
}

TEST(FetchTogether, ThreadsThatComeLateFindNothing) {
  http::WorkerPool pool(1);
  absl::Notification go;
  // The pool is busy until all is fetched.
  ASSERT_TRUE(pool.Submit([&go] { go.WaitForNotification(); }));
  std::atomic<int> num_fetched{0};
  EXPECT_TRUE(FetchTogether(4, pool, [&](size_t) { return ++num_fetched <= 4; }));
  absl::Notification done;
  ASSERT_TRUE(pool.Submit([&done] { done.Notify(); }));
  go.Notify();
  done.WaitForNotification();
  EXPECT_EQ(num_fetched, 4);
}

TEST(FetchTogether, ThrowsWhatOneThrewWhenAllHaveEnded) {
  http::WorkerPool pool(static_cast<int>(kMostFetches));
  std::atomic<int> num_running{0};
  EXPECT_THROW(FetchTogether(kMostFetches, pool,
                             [&](size_t i) {
                               ++num_running;
                               if (i == 2) {
                                 --num_running;
                                 throw std::runtime_error("no");
                               }
                               --num_running;
                               return true;
                             }),
               std::runtime_error);
  EXPECT_EQ(num_running, 0);
}

}  // namespace
}  // namespace tandem::images
