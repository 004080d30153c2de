// CheckpointSchedule: the driver's part in saving checkpoints: when one is due, and which driver
// state it holds. A failed write is reported, and training continues.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_

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

// Used by one thread; all arguments must outlive it.
class CheckpointSchedule {
 public:
  // Each checkpoint stores `inputs`.
  CheckpointSchedule(const config::v1::RunConfig& config, TrainerClient& trainer, RunFolder& folder,
                     Progress& progress, const RunInputs& inputs)
      : config_(config), trainer_(trainer), folder_(folder), progress_(progress), inputs_(inputs) {}

  bool IsDue(int64_t step) const {
    const int64_t freq = config_.trainer().save_freq();
    return freq > 0 && step % freq == 0;
  }

  // Starts saving the state of trainer and driver after a step. Adds timing_s/save_checkpoint, the
  // time that training is blocked, and sets `state.metrics` to the step's metrics. Errors: the
  // trainer or the lease is lost, the run folder is gone, or the disk has no room for the final
  // model. A checkpoint that cannot be written is not an error.
  absl::Status Save(int64_t step, v1::DriverState state, Metrics& metrics);

  // Records the outcome of a background write: timing_s/write_checkpoint and checkpoint/bytes, or
  // checkpoint/failures and a note.
  void Note(const trainer::v1::CheckpointOutcome& outcome, Metrics& metrics);

  // Waits for the last checkpoint, then writes run_dir/model into the space reserved for it.
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

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_
