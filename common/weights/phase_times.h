// PhaseTimes: where the time of an update went, as the thread that runs it sees it.
//
// `exposed` is the thread's own time: what it did, or what it waited for; so the exposed times of
// all phases add up to the whole. `busy` is how long the phase went on, hidden behind others or
// not.
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

  // The thread worked in `phase` since `start`. Answers now.
  Clock::time_point Worked(absl::string_view phase, Clock::time_point start);
  // The thread waited since `wait_start` for a phase that had been going on since `phase_start`.
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
