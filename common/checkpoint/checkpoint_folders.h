// The folders of a run's checkpoints, run_dir/checkpoints/step-N: names, lists and removes them.
#ifndef TANDEM_COMMON_CHECKPOINT_CHECKPOINT_FOLDERS_H_
#define TANDEM_COMMON_CHECKPOINT_CHECKPOINT_FOLDERS_H_

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

// Lists checkpoints, newest first, without opening them. Empty if the folder does not exist.
std::vector<RunCheckpoint> ListCheckpoints(const std::string& folder);

// Keeps the `keep_last` newest checkpoints up to `step`, the one just written; 0 keeps all. Leaves
// folders that are no checkpoint. Renames each checkpoint before deleting it, so that nobody finds
// a partial one.
absl::Status RemoveOldCheckpoints(const std::string& folder, int64_t step, int64_t keep_last);

// Removes the temporary folders and files that a killed process left.
absl::Status RemoveUnfinished(const std::string& folder);

}  // namespace tandem::checkpoint

#endif  // TANDEM_COMMON_CHECKPOINT_CHECKPOINT_FOLDERS_H_
