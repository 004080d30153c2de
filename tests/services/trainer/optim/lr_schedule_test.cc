#include "services/trainer/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tandem::trainer {
namespace {

config::v1::OptimConfig Config(config::v1::LrSchedule schedule, int64_t warmup, double min_ratio) {
  config::v1::OptimConfig config;
  config.set_lr(0.4);
  config.set_schedule(schedule);
  config.set_warmup_steps(warmup);
  config.set_min_lr_ratio(min_ratio);
  return config;
}

TEST(LearningRate, StaysAtLrWhereConstant) {
  for (const auto schedule :
       {config::v1::LR_SCHEDULE_UNSPECIFIED, config::v1::LR_SCHEDULE_CONSTANT}) {
    const auto config = Config(schedule, 0, 0.1);
    EXPECT_DOUBLE_EQ(LearningRate(config, 0, 100), 0.4);
    EXPECT_DOUBLE_EQ(LearningRate(config, 99, 100), 0.4);
    EXPECT_DOUBLE_EQ(LearningRate(config, 1000, 100), 0.4);
  }
}

TEST(LearningRate, RisesLinearlyFromZeroOverTheWarmUp) {
  for (const auto schedule : {config::v1::LR_SCHEDULE_CONSTANT, config::v1::LR_SCHEDULE_LINEAR,
                              config::v1::LR_SCHEDULE_COSINE}) {
    const auto config = Config(schedule, 10, 0.0);
    EXPECT_DOUBLE_EQ(LearningRate(config, 0, 100), 0.0);
    EXPECT_DOUBLE_EQ(LearningRate(config, 5, 100), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(config, 10, 100), 0.4);
  }
}

TEST(LearningRate, FallsLinearlyToItsFloorAndStaysThere) {
  const auto config = Config(config::v1::LR_SCHEDULE_LINEAR, 20, 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(config, 20, 100), 0.4);
  EXPECT_DOUBLE_EQ(LearningRate(config, 60, 100), 0.5 * (0.4 + 0.1));
  EXPECT_DOUBLE_EQ(LearningRate(config, 100, 100), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(config, 500, 100), 0.1);
}

TEST(LearningRate, FallsAlongHalfACosineToItsFloor) {
  const auto config = Config(config::v1::LR_SCHEDULE_COSINE, 0, 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(config, 0, 80), 0.4);
  EXPECT_NEAR(LearningRate(config, 20, 80), 0.2 + 0.2 * 0.5 * (1 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(LearningRate(config, 40, 80), 0.3, 1e-12);
  EXPECT_NEAR(LearningRate(config, 80, 80), 0.2, 1e-12);
}

TEST(LearningRate, TakesTheConfigsDefaults) {
  EXPECT_DOUBLE_EQ(LearningRate(config::v1::OptimConfig(), 3, 10), 1e-6);
}

TEST(LearningRate, SurvivesARunShorterThanItsWarmUp) {
  const auto config = Config(config::v1::LR_SCHEDULE_COSINE, 10, 0.0);
  EXPECT_DOUBLE_EQ(LearningRate(config, 4, 5), 0.16);
  EXPECT_NEAR(LearningRate(config, 11, 5), 0.0, 1e-12);
}

}  // namespace
}  // namespace tandem::trainer
