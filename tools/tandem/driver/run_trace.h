// The trace of a run: records the driver's spans and merges the traces of all processes.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_

#include <string>

#include "absl/status/status.h"

namespace tandem::driver {

// Starts recording the spans of this process.
void StartRunTrace(const std::string& run_dir);

// Call after the other processes have ended. Merges their traces in `run_dir`/logs and this
// process's into `run_dir`/trace.json.
absl::Status WriteRunTrace(const std::string& run_dir);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_TRACE_H_
