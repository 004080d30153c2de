// The driver's loop: generate, judge, train, publish. `sync` runs the four in turn; `one_step_off`
// generates the next step's samples while a step trains; `async` never stops generating.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_TRAINING_LOOP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_TRAINING_LOOP_H_

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/episodes.h"
#include "tools/tandem/driver/evaluator.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/resume.h"
#include "tools/tandem/driver/rewarder.h"
#include "tools/tandem/driver/rollout_fleet.h"
#include "tools/tandem/driver/run_folder.h"
#include "tools/tandem/driver/run_inputs.h"
#include "tools/tandem/driver/teachers.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {

// Dependencies of a loop; all must outlive it. Pointers may be null only where stated.
struct LoopContext {
  const config::v1::RunConfig& config;
  TrainerClient& trainer;
  RolloutFleet* fleet;  // null: no rollouts (sft and dpo that sample nothing)
  Rewarder* rewarder;   // null likewise
  Episodes* episodes;   // null: completions of a single turn
  PromptSource& train;
  PromptSource* test;  // null: no evaluation
  RunFolder& folder;
  Progress& progress;
  const ResumePoint* resume;  // null: the run begins with step 1
  const RunInputs& inputs;    // stored in checkpoints
  std::function<bool()> interrupted;
  // Receives each step's metrics after they are written.
  std::function<void(int64_t step, const Metrics&)> on_step;
  Teachers* teachers = nullptr;  // null: none
  bool sees_images = false;      // the policy has a vision tower
};

// Results of a run.
struct RunSummary {
  // Evaluations in order: step and mean reward.
  std::vector<std::pair<int64_t, double>> evaluations;
  // Mean reward of each step's groups, including those that dynamic sampling filtered out.
  std::vector<double> rewards;
  int64_t steps = 0;
  double seconds = 0;
  std::optional<int64_t> best_step;  // whose model is in run_dir/best
};

// Runs trainer.total_steps steps of reinforcement learning and writes run_dir/model. CANCELLED when
// interrupted.
absl::StatusOr<RunSummary> RunReinforcement(const LoopContext& context);

// Runs trainer.total_steps steps of supervised training on the rows' completions and writes
// run_dir/model.
absl::StatusOr<RunSummary> RunSupervised(const LoopContext& context);

// Like RunSupervised(), but direct preference optimisation on the rows' pairs.
absl::StatusOr<RunSummary> RunPreference(const LoopContext& context);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_TRAINING_LOOP_H_
