#include "services/trainer/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem::trainer {
namespace {

constexpr double kDefaultLr = 1e-6;

// The share of the decay from 1 to min_lr_ratio that remains after `progress` in [0, 1].
double Remaining(config::v1::LrSchedule schedule, double progress) {
  switch (schedule) {
    case config::v1::LR_SCHEDULE_LINEAR:
      return 1.0 - progress;
    case config::v1::LR_SCHEDULE_COSINE:
      return 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
    default:
      return 1.0;
  }
}

}  // namespace

double LearningRate(const config::v1::OptimConfig& config, int64_t step, int64_t total_steps) {
  const double lr = config.has_lr() ? config.lr() : kDefaultLr;
  const int64_t warmup = config.warmup_steps();
  if (step < warmup) return lr * static_cast<double>(step) / static_cast<double>(warmup);
  const int64_t decay_steps = std::max<int64_t>(1, total_steps - warmup);
  const double progress =
      std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(decay_steps));
  const double floor = config.min_lr_ratio();
  return lr * (floor + (1.0 - floor) * Remaining(config.schedule(), progress));
}

}  // namespace tandem::trainer
