#include "common/host/run_on_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "absl/synchronization/barrier.h"
#include "tests/support/sanitizer.h"

namespace tandem::host {
namespace {

TEST(RunOnThreads, RunsOnAsManyThreadsAsItIsTold) {
  constexpr int kThreads = 4;
  auto* const together = new absl::Barrier(kThreads);
  RunOnThreads(kThreads, [&] {
    if (together->Block()) delete together;
  });
}

TEST(RunOnThreads, RunsInTheCallersThreadWhateverTheNumber) {
  int calls = 0;
  RunOnThreads(1, [&] { ++calls; });
  RunOnThreads(0, [&] { ++calls; });
  EXPECT_EQ(calls, 2);
}

TEST(RunOnThreads, ThrowsWhatAThreadThrewWhenAllHaveEnded) {
  std::atomic<int> ended{0};
  EXPECT_THROW(RunOnThreads(4,
                            [&] {
                              if (ended++ == 2) throw std::runtime_error("one of them");
                            }),
               std::runtime_error);
  EXPECT_EQ(ended, 4);
}

// Threads need address space for their stacks.
void WorkWithoutThreads() {
  const rlimit space{rlim_t{1} << 20, rlim_t{1} << 20};
  setrlimit(RLIMIT_AS, &space);
  std::atomic<int> next{0};
  int done[100] = {};
  RunOnThreads(16, [&] {
    for (int i = next++; i < 100; i = next++) done[i] = 1;
  });
  for (const int one : done) {
    if (one != 1) std::_Exit(1);
  }
  std::fputs("all done", stderr);
  std::_Exit(0);
}

TEST(RunOnThreadsDeathTest, DoesAllOfTheWorkWhereNoThreadCanBeStarted) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer maps more than the limit";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(WorkWithoutThreads(), ::testing::ExitedWithCode(0), "all done");
}

}  // namespace
}  // namespace tandem::host
