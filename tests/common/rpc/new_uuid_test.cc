#include "common/rpc/new_uuid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tandem::rpc {
namespace {

constexpr size_t kDigits = 36;

TEST(NewUuid, IsARandomOneInItsUsualForm) {
  EXPECT_THAT(NewUuid(), ::testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]"
                                                 "[0-9a-f]{3}-[0-9a-f]{12}"));
}

TEST(NewUuid, AreDistinctInAllThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 1000;
  std::array<std::vector<std::string>, kThreads> made;
  std::vector<std::thread> threads;
  for (std::vector<std::string>& ids : made) {
    threads.emplace_back([&ids] {
      for (int i = 0; i < kEach; ++i) ids.push_back(NewUuid());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> distinct;
  for (const std::vector<std::string>& ids : made) distinct.insert(ids.begin(), ids.end());
  EXPECT_EQ(distinct.size(), size_t{kThreads} * kEach);
}

// Every one of the digits that are random takes several values.
TEST(NewUuid, AllItsBitsAreRandom) {
  std::array<std::set<char>, kDigits> seen;
  for (int i = 0; i < 200; ++i) {
    const std::string id = NewUuid();
    for (size_t k = 0; k < kDigits; ++k) seen[k].insert(id[k]);
  }
  for (size_t k = 0; k < kDigits; ++k) {
    const bool is_fixed = k == 8 || k == 13 || k == 14 || k == 18 || k == 23;
    EXPECT_EQ(seen[k].size(), is_fixed ? 1 : k == 19 ? 4 : 16) << "digit " << k;
  }
}

TEST(NewUuid, AProcessThatForksRepeatsNone) {
  NewUuid();
  std::array<int, 2> pipe_ends;
  ASSERT_EQ(pipe(pipe_ends.data()), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string id = NewUuid();
    _exit(write(pipe_ends[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
  }
  close(pipe_ends[1]);
  std::string of_child(kDigits, '\0');
  EXPECT_EQ(read(pipe_ends[0], of_child.data(), kDigits), static_cast<ssize_t>(kDigits));
  close(pipe_ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(of_child, NewUuid());
}

}  // namespace
}  // namespace tandem::rpc
