// The run id: a UUID that names a run for as long as it lasts. It is drawn when the run begins and
// kept in run_dir/run_id, so that every process that continues the run, on whatever machine, has
// the same. The trainer and the rollouts tell by it one run's calls from another's.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::driver {

// The id of the run in `run_dir`, a folder that exists. With `resume` it is the one that is kept
// there; a folder that has none, and every run that begins, gets a new one. Writes nothing.
// FAILED_PRECONDITION where the file holds no run id.
absl::StatusOr<std::string> ChooseRunId(const std::string& run_dir, bool resume);

// Keeps the id in the folder. RunFolder does so once the folder is the run's.
absl::Status WriteRunId(const std::string& run_dir, const std::string& id);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_
