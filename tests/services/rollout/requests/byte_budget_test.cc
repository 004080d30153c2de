#include "services/rollout/requests/byte_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;

constexpr int64_t kMiB = int64_t{1} << 20;

absl::Status Stay() { return absl::OkStatus(); }

TEST(ByteBudget, TakesWhatIsFreeAndWaitsForTheRest) {
  ByteBudget budget(4 * kMiB);
  auto first = budget.Take(3 * kMiB, Stay);
  ASSERT_OK(first.status());
  ASSERT_OK(budget.Take(kMiB, Stay).status());  // and returns it

  absl::Notification waits;
  absl::Notification taken;
  std::thread other([&] {
    const auto share = budget.Take(2 * kMiB, [&] {
      if (!waits.HasBeenNotified()) waits.Notify();
      return absl::OkStatus();
    });
    EXPECT_OK(share.status());
    taken.Notify();
  });
  waits.WaitForNotification();
  EXPECT_FALSE(taken.HasBeenNotified());
  { const auto returned = *std::move(first); }
  other.join();
  EXPECT_TRUE(taken.HasBeenNotified());
}

TEST(ByteBudget, ARequestOfMoreThanAllGetsAllOfIt) {
  ByteBudget budget(kMiB);
  ASSERT_OK(budget.Take(100 * kMiB, Stay).status());
  ASSERT_OK(budget.Take(100 * kMiB, Stay).status());
}

TEST(ByteBudget, ACallerThatHasGoneLeavesTheQueueToTheNext) {
  ByteBudget budget(kMiB);
  auto all = budget.Take(kMiB, Stay);
  ASSERT_OK(all.status());
  EXPECT_THAT(budget.Take(kMiB, [] { return absl::CancelledError("gone"); }),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  { const auto returned = *std::move(all); }
  ASSERT_OK(budget.Take(kMiB, Stay).status());
}

TEST(ByteBudget, SmallRequestsNeverWait) {
  ByteBudget budget(kMiB);
  const auto all = budget.Take(kMiB, Stay);
  ASSERT_OK(all.status());
  EXPECT_OK(
      budget.Take(ByteBudget::kFreeBytes, [] { return absl::CancelledError("waits"); }).status());
}

}  // namespace
}  // namespace tandem::rollout
