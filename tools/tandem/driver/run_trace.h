// The trace of a run: the driver's own spans, and one file of those of every process.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_

#include <string>

#include "absl/status/status.h"

namespace tandem::driver {

// Begins to record what this process does.
void StartRunTrace(const std::string& run_dir);

// Once the other processes have ended: merges what they left in `run_dir`/logs with this one's into
// `run_dir`/trace.json.
absl::Status WriteRunTrace(const std::string& run_dir);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_
