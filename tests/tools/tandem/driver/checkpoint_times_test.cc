#include "tools/tandem/driver/checkpoint_times.h"

#include <gtest/gtest.h>

namespace tandem::driver {
namespace {

config::v1::TrainerConfig Saving(int64_t freq, double interval_seconds) {
  config::v1::TrainerConfig config;
  config.set_save_freq(freq);
  config.set_save_interval_seconds(interval_seconds);
  return config;
}

TEST(CheckpointTimes, AreEverySoManySteps) {
  const CheckpointTimes times(Saving(2, 0), absl::UnixEpoch());

  EXPECT_TRUE(times.saves());
  EXPECT_FALSE(times.IsDue(1, absl::UnixEpoch() + absl::Hours(1)));
  EXPECT_TRUE(times.IsDue(2, absl::UnixEpoch()));
  EXPECT_FALSE(times.IsDue(3, absl::UnixEpoch()));
}

TEST(CheckpointTimes, AreWhenTheLastSaveIsLongAgo) {
  absl::Time now = absl::UnixEpoch();
  CheckpointTimes times(Saving(100, 600), now);

  EXPECT_FALSE(times.IsDue(1, now += absl::Seconds(599)));
  EXPECT_TRUE(times.IsDue(2, now += absl::Seconds(1)));
  times.OnSave(now);
  EXPECT_FALSE(times.IsDue(3, now += absl::Seconds(599)));
  EXPECT_TRUE(times.IsDue(4, now += absl::Seconds(1)));
}

TEST(CheckpointTimes, AreNeverWhereBothAreZero) {
  const CheckpointTimes times(Saving(0, 0), absl::UnixEpoch());

  EXPECT_FALSE(times.saves());
  EXPECT_FALSE(times.IsDue(1, absl::UnixEpoch() + absl::Hours(1)));
}

}  // namespace
}  // namespace tandem::driver
