#include "common/model/worker_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "common/host/cpu_list.h"
#include "tests/support/sanitizer.h"

namespace tandem::model {
namespace {

TEST(WorkerPool, DoesEveryElementOnceInEverySection) {
  for (int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    ASSERT_EQ(pool.num_threads(), threads);
    for (int64_t section = 0; section < 20000; ++section) {
      const int64_t count = section % 9;
      std::vector<std::atomic<int>> times(count);
      pool.Run(count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++times[i];
      });
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(times[i], 1) << section << " of " << count;
    }
  }
}

TEST(WorkerPool, WakesWorkersThatSleep) {
  WorkerPool pool(3);
  for (int i = 0; i < 20; ++i) {
    // Workers give up waiting after some hundred microseconds; whether they have is of no matter.
    std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
    std::atomic<int64_t> sum{0};
    pool.Run(100, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) sum += j;
    });
    ASSERT_EQ(sum, 4950);
  }
}

TEST(WorkerPool, SharesAWorkOutAmongItsThreads) {
  WorkerPool pool(2);
  // Each range waits for the other: one thread alone could not do both.
  std::atomic<int> begun{0};
  pool.Run(2, [&](int64_t, int64_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  EXPECT_EQ(begun, 2);
}

TEST(WorkerPool, ThrowsWhatABodyThrowsAndGoesOn) {
  WorkerPool pool(2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_THROW(pool.Run(2,
                          [&](int64_t begin, int64_t) {
                            if (begin == i % 2) throw std::runtime_error("no");
                          }),
                 std::runtime_error);
    int64_t count = 0;
    pool.Run(1, [&](int64_t begin, int64_t end) { count += end - begin; });
    EXPECT_EQ(count, 1);
  }
}

TEST(WorkerPool, RunsALoopWithinALoopInTheSameThread) {
  WorkerPool pool(2);
  std::atomic<int64_t> count{0};
  pool.Run(2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      pool.Run(5, [&](int64_t first, int64_t last) { count += last - first; });
    }
  });
  EXPECT_EQ(count, 10);
}

// Threads need address space for their stacks.
void WorkWithoutWorkers() {
  const rlimit space{rlim_t{1} << 20, rlim_t{1} << 20};
  setrlimit(RLIMIT_AS, &space);
  WorkerPool pool(16);
  int done[100] = {};
  pool.Run(100, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++done[i];
  });
  for (const int times : done) {
    if (times != 1) std::_Exit(1);
  }
  std::fprintf(stderr, "%d thread", pool.num_threads());
  std::_Exit(0);
}

TEST(WorkerPoolDeathTest, WorksWithTheThreadsThatTheSystemStarts) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer maps more than the limit";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(WorkWithoutWorkers(), ::testing::ExitedWithCode(0), "^1 thread$");
}

TEST(UseWorkerPool, IsOfThisThreadAndForAWhile) {
  WorkerPool outer(1), inner(1);
  ASSERT_EQ(CurrentWorkerPool(), nullptr);
  {
    const UseWorkerPool use(&outer);
    {
      const UseWorkerPool again(&inner);
      EXPECT_EQ(CurrentWorkerPool(), &inner);
    }
    EXPECT_EQ(CurrentWorkerPool(), &outer);
    std::thread([] { EXPECT_EQ(CurrentWorkerPool(), nullptr); }).join();
  }
  EXPECT_EQ(CurrentWorkerPool(), nullptr);
}

TEST(WorkerPool, ThreadsArePinnedToOneCpuEach) {
  const std::vector<int> allowed = host::AllowedCpus();
  const int num_threads = std::min<int>(2, static_cast<int>(allowed.size()));
  std::thread([&] {
    WorkerPool pool(num_threads, {allowed.begin(), allowed.begin() + num_threads});
    std::mutex mu;
    std::map<std::thread::id, std::vector<int>> seen;
    // Until each thread has had a range of one of the sections.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (static_cast<int>(seen.size()) < num_threads &&
           std::chrono::steady_clock::now() < deadline) {
      pool.Run(num_threads, [&](int64_t, int64_t) {
        const std::lock_guard<std::mutex> lock(mu);
        seen[std::this_thread::get_id()] = host::AllowedCpus();
      });
    }
    std::vector<int> cpus;
    for (const auto& [thread, its] : seen) {
      ASSERT_EQ(its.size(), 1u);
      cpus.push_back(its.front());
    }
    std::sort(cpus.begin(), cpus.end());
    EXPECT_EQ(cpus, std::vector<int>(allowed.begin(), allowed.begin() + num_threads));
  }).join();
}

TEST(WorkerPool, ACpuThatMayNotBeUsedIsPassedOver) {
  std::thread([] {
    const std::vector<int> allowed = host::AllowedCpus();
    WorkerPool pool(1, {CPU_SETSIZE - 1});
    EXPECT_EQ(host::AllowedCpus(), allowed);
  }).join();
}

}  // namespace
}  // namespace tandem::model
