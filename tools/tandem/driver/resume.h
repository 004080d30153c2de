// Resumes an interrupted run: selects the checkpoint and restores trainer and run folder to it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_folders.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// The value of `--resume`: the newest checkpoint of the run's folder, or a named folder.
struct ResumeRequest {
  std::string folder;  // empty: the newest
};

// The state that a run resumes from.
struct ResumePoint {
  int64_t policy_version = 0;
  v1::DriverState state;             // state.step() is the last finished step
  std::vector<nlohmann::json> rows;  // lines of metrics.jsonl up to that step
};

// Returns the checkpoints to try, the best first; empty if the run has none yet. NOT_FOUND if the
// request names a missing folder.
absl::StatusOr<std::vector<checkpoint::RunCheckpoint>> FindCheckpoints(const ResumeRequest& request,
                                                                       const std::string& run_dir);

// Has the trainer load the first of `candidates` that is not damaged, reports the damaged ones, and
// truncates the run's folder to it. The policy version continues after the largest that a rollout
// reports. Errors: DATA_LOSS says what is wrong with each if all are damaged; FAILED_PRECONDITION
// if the checkpoint belongs to another model, algorithm or data, see CheckDriverState().
absl::StatusOr<ResumePoint> Resume(const std::vector<checkpoint::RunCheckpoint>& candidates,
                                   const RunIdentity& run, TrainerClient& trainer,
                                   RolloutFleet* fleet, RunFolder& folder, Progress& progress);

// Returns by how much the trainer's version numbers exceed those of the run's metrics and rollouts,
// which count from the run's first weights: a trainer that loads a checkpoint gives its weights a
// larger number, because a version never names two sets of weights. `resume`: null at step 1.
absl::StatusOr<int64_t> VersionShift(TrainerClient& trainer, const ResumePoint* resume);

// Call if there is no checkpoint to resume from. If the trainer is ahead, because an earlier driver
// ended before saving the first checkpoint, restores its initial state. Changes nothing if no step
// was applied.
absl::Status RestoreInitialState(TrainerClient& trainer, RolloutFleet* fleet, Progress& progress);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_
