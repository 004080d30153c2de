// Runs checks one after another. None ends the others, whatever happens in it.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHECKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/tandem/gpu_check/check.h"

namespace tandem::gpu_check {

struct RunChecksOptions {
  // Of all checks together: one that would begin later fails without being run.
  absl::Time deadline = absl::InfiniteFuture();
  // True skips the checks that have not begun. May be empty, as the others.
  std::function<bool()> interrupted;
  // Before a check; `index` counts from 0.
  std::function<void(const Check& check, size_t index)> begins;
  // After a check, with all that have ended.
  std::function<void(const std::vector<Ran>& ran)> ended;
};

// A check gets its own limit or what is left of the deadline, whichever is less; an exception is a
// failure. Returns all checks, in order.
std::vector<Ran> RunChecks(const std::vector<Check>& checks, const RunChecksOptions& options);

// OK unless a check failed; else FAILED_PRECONDITION, which names those that did.
absl::Status StatusOf(const std::vector<Ran>& ran);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_RUN_CHECKS_H_
