// The checkpoints of a run: folders step-N under run_dir/checkpoints.
#ifndef TANDEM_COMMON_CHECKPOINT_RUN_CHECKPOINTS_H_
#define TANDEM_COMMON_CHECKPOINT_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem::checkpoint {

struct RunCheckpoint {
  int64_t step = 0;
  std::string path;
};

// "step-12"
std::string CheckpointName(int64_t step);

// Newest first; what is inside is not looked at. Empty where there is no folder.
std::vector<RunCheckpoint> ListCheckpoints(const std::string& folder);

// Keeps the `keep_last` newest of those up to `step`, the one that was just written; 0 keeps all.
// Folders that are no checkpoint stay. Each is first taken out of the list (renamed), so that no
// half of one is ever found.
absl::Status RemoveOldCheckpoints(const std::string& folder, int64_t step, int64_t keep_last);

// Removes what a process that was killed had not finished: temporary folders and files.
absl::Status RemoveUnfinished(const std::string& folder);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_RUN_CHECKPOINTS_H_
