// PhaseTimes: the time of each phase of an update, measured on the thread that runs it.
//
// `exposed` is the thread's own time, working or waiting; the exposed times of all phases add up to
// the total. `busy` is the phase's duration, whether overlapped by others or not.
#ifndef TANDEM_COMMON_WEIGHTS_PHASE_TIMES_H_
#define TANDEM_COMMON_WEIGHTS_PHASE_TIMES_H_

#include <google/protobuf/repeated_field.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::weights {

class PhaseTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // The thread worked in `phase` since `start`. Returns the current time.
  Clock::time_point Worked(absl::string_view phase, Clock::time_point start);
  // The thread waited since `wait_start` for a phase that started at `phase_start`.
  Clock::time_point Waited(absl::string_view phase, Clock::time_point phase_start,
                           Clock::time_point wait_start);
  void Add(absl::string_view phase, double busy, double exposed);

  // In order of first mention.
  const std::vector<common::v1::PhaseSeconds>& phases() const { return phases_; }
  double exposed_sum() const;

 private:
  std::vector<common::v1::PhaseSeconds> phases_;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_PHASE_TIMES_H_
