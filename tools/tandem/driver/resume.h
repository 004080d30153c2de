// Going on with a run that was interrupted: which checkpoint, and putting trainer and run folder
// back to it.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/checkpoint/run_checkpoints.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// What `--resume` asks for: the newest checkpoint of the run's folder, or the folder it names.
struct ResumeRequest {
  std::string folder;  // empty: the newest
};

// Where a run goes on.
struct ResumePoint {
  int64_t policy_version = 0;
  v1::DriverState state;             // state.step() is the last step that is done
  std::vector<nlohmann::json> rows;  // of metrics.jsonl, up to that step
};

// The checkpoints to try, the best first. Empty where the run has none yet. NOT_FOUND where the
// request names a folder that is not there.
absl::StatusOr<std::vector<checkpoint::RunCheckpoint>> FindCheckpoints(const ResumeRequest& request,
                                                                       const std::string& run_dir);

// Has the trainer load the first of `candidates` that is whole, noting those that are not, and cuts
// the run's folder back to it. The policy version continues after the largest that a rollout
// reports. Errors: DATA_LOSS says what is wrong with each where none is whole; FAILED_PRECONDITION
// where the checkpoint is of another model, algorithm or data, see CheckDriverState().
absl::StatusOr<ResumePoint> Resume(const std::vector<checkpoint::RunCheckpoint>& candidates,
                                   const RunIdentity& run, TrainerClient& trainer,
                                   RolloutFleet* fleet, RunFolder& folder, Progress& progress);

// Where there is no checkpoint to go on from: has a trainer that is ahead, for an earlier driver
// ended before the first one was saved, go back to the state that it began with. Changes nothing
// where no step was applied.
absl::Status BeginAnew(TrainerClient& trainer, RolloutFleet* fleet, Progress& progress);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RESUME_H_
