// RunCheckpoints: the driver's side of saving: when a checkpoint is due, what of the driver goes
// into it, and what becomes of a write that failed: it is told, and training goes on.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_CHECKPOINTS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_CHECKPOINTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/run_inputs.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// Used by one thread; everything outlives it.
class RunCheckpoints {
 public:
  // `inputs` are saved with each checkpoint.
  RunCheckpoints(const config::v1::RunConfig& config, TrainerClient& trainer, RunFolder& folder,
                 Progress& progress, const RunInputs& inputs)
      : config_(config), trainer_(trainer), folder_(folder), progress_(progress), inputs_(inputs) {}

  bool IsDue(int64_t step) const {
    const int64_t freq = config_.trainer().save_freq();
    return freq > 0 && step % freq == 0;
  }

  // Begins to save what the trainer and the driver hold after a step. Adds
  // timing_s/save_checkpoint, for which training stood still. `state.metrics` becomes the step's
  // metrics. An error is the trainer's end, a run folder that is gone, or a disk without room for
  // the model that the run ends with; a checkpoint that cannot be written is none.
  absl::Status Save(int64_t step, v1::DriverState state, Metrics& metrics);

  // How a write that went on in the background ended: timing_s/write_checkpoint, or
  // checkpoint/failures and a note.
  void Note(const trainer::v1::CheckpointOutcome& outcome, Metrics& metrics);

  // Writes run_dir/model, after the last checkpoint is written, in the space kept for it.
  absl::Status SaveModel();

 private:
  void NoteFailure(int64_t step, absl::string_view error, Metrics& metrics);

  const config::v1::RunConfig& config_;
  TrainerClient& trainer_;
  RunFolder& folder_;
  Progress& progress_;
  const RunInputs& inputs_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_CHECKPOINTS_H_
