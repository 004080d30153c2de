#include "services/trainer/service/command_queue.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;

TEST(CommandQueue, HandsOutCommandsInTheOrderTheyCame) {
  CommandQueue queue(4);
  std::vector<int> done;
  ASSERT_THAT(queue.Submit([&] { done.push_back(1); }), IsOk());
  ASSERT_THAT(queue.Submit([&] { done.push_back(2); }), IsOk());

  while (auto command = queue.Next(absl::ZeroDuration())) (*command)();

  EXPECT_EQ(done, std::vector<int>({1, 2}));
}

TEST(CommandQueue, RefusesMoreThanItsBound) {
  CommandQueue queue(1);
  ASSERT_THAT(queue.Submit([] {}), IsOk());
  EXPECT_THAT(queue.Submit([] {}), StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
}

TEST(CommandQueue, HandsOutWhatItTookBeforeItWasClosed) {
  CommandQueue queue(4);
  ASSERT_THAT(queue.Submit([] {}), IsOk());

  queue.Close();

  EXPECT_THAT(queue.Submit([] {}), StatusIs(absl::StatusCode::kUnavailable, ::testing::_));
  EXPECT_FALSE(queue.IsFinished());
  EXPECT_TRUE(queue.Next(absl::InfiniteDuration()).has_value());
  EXPECT_TRUE(queue.IsFinished());
  EXPECT_FALSE(queue.Next(absl::InfiniteDuration()).has_value());
}

}  // namespace
}  // namespace tandem::trainer
