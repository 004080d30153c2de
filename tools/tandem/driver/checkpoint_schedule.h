// CheckpointSchedule: the driver's part in saving checkpoints: when one is due, and which driver
// state it holds. A failed write is reported, and training continues.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tandem/trainer/v1/trainer_service.pb.h"
#include "tools/tandem/driver/checkpoint_times.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/run_inputs.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// Used by one thread; all arguments must outlive it.
class CheckpointSchedule {
 public:
  // Each checkpoint stores `inputs`. Notes a configuration that never saves.
  CheckpointSchedule(const config::v1::RunConfig& config, TrainerClient& trainer, RunFolder& folder,
                     Progress& progress, const RunInputs& inputs);

  // Call after each step with the driver's state, before the step's line is written. If a
  // checkpoint is due, starts saving and adds timing_s/save_checkpoint, the time that training is
  // blocked; otherwise keeps the state for SaveLast(). The saved state holds the step's metrics.
  // Errors: the trainer or the lease is lost, the run folder is gone, or the disk has no room for
  // the final model. A checkpoint that cannot be written is not an error.
  absl::Status AfterStep(int64_t step, v1::DriverState state, Metrics& metrics);

  // Call when the run is interrupted: saves the last step unless its checkpoint is complete,
  // returns once it is written, and notes how to continue. A configuration that never saves changes
  // nothing. Failures are noted, too: the run ends anyway.
  void SaveLast();

  // Records the outcome of a background write: timing_s/write_checkpoint and checkpoint/bytes, or
  // checkpoint/failures and a note.
  void Note(const trainer::v1::CheckpointOutcome& outcome, Metrics& metrics);

  // Call at the end of the run: saves its last step unless that is done or the configuration never
  // saves, so that --resume with more trainer.total_steps extends the run. Waits for the last
  // checkpoint, then writes run_dir/model into the space reserved for it.
  absl::Status SaveModel();

 private:
  absl::Status Save(Metrics& metrics);
  absl::Status TrySaveLast();
  absl::Status SaveEnd();
  void NoteFailure(int64_t step, absl::string_view error, Metrics& metrics);

  TrainerClient& trainer_;
  RunFolder& folder_;
  Progress& progress_;
  const RunInputs& inputs_;
  CheckpointTimes times_;
  std::optional<v1::DriverState> last_;  // after the last step
  int64_t begun_step_ = -1;              // of the last checkpoint that was asked for
  int64_t written_step_ = -1;            // of the last checkpoint that is complete
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_CHECKPOINT_SCHEDULE_H_
