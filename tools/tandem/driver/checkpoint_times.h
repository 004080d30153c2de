// CheckpointTimes: the steps after which a run saves: every save_freq steps, and whenever the last
// save is save_interval_seconds ago.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_TIMES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_TIMES_H_

#include <cstdint>

#include "absl/time/time.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::driver {

class CheckpointTimes {
 public:
  // The run begins, or resumes, at `start`.
  CheckpointTimes(const config::v1::TrainerConfig& config, absl::Time start)
      : freq_(config.save_freq()),
        interval_(absl::Seconds(config.save_interval_seconds())),
        last_(start) {}

  // Whether the run saves at all.
  bool saves() const { return freq_ > 0 || interval_ > absl::ZeroDuration(); }

  bool IsDue(int64_t step, absl::Time now) const {
    if (freq_ > 0 && step % freq_ == 0) return true;
    return interval_ > absl::ZeroDuration() && now - last_ >= interval_;
  }

  void OnSave(absl::Time now) { last_ = now; }

 private:
  const int64_t freq_;
  const absl::Duration interval_;
  absl::Time last_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_TIMES_H_
