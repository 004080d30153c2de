// The run id: a UUID that names a run for its lifetime. A run draws it at its start and stores it
// in run_dir/run_id, so that every process that resumes the run, on any machine, has the same id.
// The trainer and the rollouts use it to tell the calls of different runs apart.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_

#include <string>

#include "absl/status/statusor.h"

namespace tandem::driver {

// Returns the run's id. With `resume`, the id stored in `run_dir`, which must exist; without it, or
// if none is stored, a new one. Writes nothing. FAILED_PRECONDITION if the file holds no run id.
absl::StatusOr<std::string> ChooseRunId(const std::string& run_dir, bool resume);

// Stores the id in the folder. RunFolder calls it once the folder is the run's.
absl::Status WriteRunId(const std::string& run_dir, const std::string& id);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_ID_H_
