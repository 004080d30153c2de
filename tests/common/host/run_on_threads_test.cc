#include "common/host/run_on_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

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

TEST(RunTogether, DoesNothingBeforeAllAreThere) {
  constexpr size_t kThreads = 4;
  std::atomic<int> begun{0};
  std::atomic<int> called[kThreads] = {};
  RunTogether(kThreads, [&](size_t i) {
    ++called[i];
    ++begun;
    while (begun < static_cast<int>(kThreads)) std::this_thread::yield();
  });
  for (const auto& times : called) EXPECT_EQ(times, 1);
  RunTogether(1, [&](size_t i) { EXPECT_EQ(i, 0u); });
}

// The system starts some of the threads: a stack takes 8 MiB or more of the address space.
void RunMoreThanFit() {
  const rlimit stack{rlim_t{8} << 20, rlim_t{8} << 20};
  setrlimit(RLIMIT_STACK, &stack);
  int64_t pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) std::_Exit(2);
  const rlim_t room = static_cast<rlim_t>(pages) * 4096 + (rlim_t{64} << 20);
  const rlimit space{room, room};
  setrlimit(RLIMIT_AS, &space);
  std::atomic<int> calls{0};
  try {
    RunTogether(1000, [&](size_t) { ++calls; });
  } catch (const std::system_error&) {
    std::fprintf(stderr, "%d calls", calls.load());
    std::_Exit(0);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "%d calls", calls.load());
    std::_Exit(0);
  }
  std::_Exit(1);
}

TEST(RunTogetherDeathTest, ThrowsBeforeAnyWorkWhereTooFewThreadsCanBeStarted) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer maps more than the limit";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(RunMoreThanFit(), ::testing::ExitedWithCode(0), "^0 calls$");
}

}  // namespace
}  // namespace tandem::host
