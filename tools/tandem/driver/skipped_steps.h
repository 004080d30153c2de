// SkippedSteps: ends a run whose steps train nothing because their gradients are not finite.
//
//   SkippedSteps skipped(config.trainer().max_skipped_steps(), note);
//   RETURN_IF_ERROR(skipped.OnStep(step, response.policy_version(), metrics));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_SKIPPED_STEPS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_SKIPPED_STEPS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace tandem::driver {

// Used by the loop's thread.
class SkippedSteps {
 public:
  // `limit` steps in a row that train nothing are an error; 0: never. `note` receives a line for
  // each such step.
  SkippedSteps(int64_t limit, std::function<void(const std::string&)> note)
      : limit_(limit), note_(std::move(note)) {}

  // A step trains nothing if it skips updates and the policy's version stays. FAILED_PRECONDITION
  // at the limit.
  absl::Status OnStep(int64_t step, int64_t policy_version,
                      const std::map<std::string, double>& metrics);

 private:
  const int64_t limit_;
  const std::function<void(const std::string&)> note_;
  int64_t version_ = -1;  // after the last step; -1: unknown
  int64_t in_a_row_ = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_SKIPPED_STEPS_H_
