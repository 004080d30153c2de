// StepLoop: the shared part of every objective's loop over steps: publishes, evaluates, saves,
// reports.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_STEP_LOOP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_STEP_LOOP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/telemetry/phase_timer.h"
#include "common/telemetry/trace_context.h"
#include "tools/tandem/driver/best_model.h"
#include "tools/tandem/driver/checkpoint_schedule.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/skipped_steps.h"
#include "tools/tandem/driver/training_loop.h"

namespace tandem::driver {

using telemetry::Stopwatch;

// Used by one thread.
class StepLoop {
 protected:
  // `command` is stored in checkpoints; a resumed run must have the same.
  StepLoop(const LoopContext& context, const char* command);

  absl::Status CheckInterrupted() const;

  // Makes the trainer's weights live on the rollouts. If replicas may change and none
  // is left, waits for new ones.
  absl::Status Publish(Metrics& metrics);
  // Call while waiting for replicas: publishes to replicas that lack weights. `version` is the
  // trainer's; while the fleet should serve an older one, new replicas wait, unless no other
  // serves. CANCELLED when interrupted.
  absl::Status CatchUp(int64_t version);

  // Attributes this thread's work and calls to `trace`, whose root span began at `start`, until
  // FinishStep().
  void EnterTrace(const telemetry::TraceContext& trace, absl::Time start);

  // Call after each TrainStep: see SkippedSteps.
  absl::Status CheckTrained(int64_t step, const trainer::v1::TrainStepResponse& response);

  bool EvaluationIsDue(int64_t step) const;
  // Name of the mean reward of evaluations, of the reward with this label.
  std::string EvaluationMetric(const std::string& label) const;
  // Evaluates the live version. `version` is the trainer's, see CatchUp().
  absl::Status RunEvaluation(int64_t step, int64_t version, Metrics& metrics);

  bool resumed() const { return c_.resume != nullptr; }
  // Call first: asks for what VersionShift() needs.
  absl::Status CountVersions();
  // Sets training/policy_version; see VersionShift().
  void AddPolicyVersion(int64_t version, Metrics& metrics) const {
    metrics["training/policy_version"] = static_cast<double>(version - version_shift_);
  }
  // Writes the metrics of step 0: the policy before training.
  absl::Status WriteInitial(const Metrics& metrics);
  // `ahead`, if any, is moved into the driver's state.
  absl::Status FinishStep(int64_t step, Metrics& metrics, std::vector<std::string> facts,
                          Ahead* ahead = nullptr);
  // Whether the trainer has applied a step that FinishStep() has not seen, and the run is
  // interrupted: FinishStep() must come before End(), or the step is lost.
  bool must_finish_step() const { return c_.interrupted() && trained_step_ > finished_step_; }
  // Call when the loop ends with `error`, and return the result: saves the last step of an
  // interrupted run.
  absl::Status End(absl::Status error);
  absl::StatusOr<RunSummary> Finish();

  const LoopContext& c_;
  const int64_t total_steps_;
  const int64_t first_step_;
  const char* const command_;
  CheckpointSchedule checkpoints_;
  const absl::Time start_ = absl::Now();
  int64_t version_shift_ = 0;  // see VersionShift()
  RunSummary summary_;

 private:
  // The step that an update made now belongs to; before this run's first step, the step before it.
  int64_t StepOfUpdate() const { return step_begun_ ? finished_step_ + 1 : first_step_ - 1; }
  // Restores the data set's position, and the summary of the earlier steps from their metrics.
  void ResumeFrom(const ResumePoint& point);

  // Keeps the model in run_dir/best if the step is the best so far. A model that cannot be written
  // is noted, and training continues.
  absl::Status SaveBest(int64_t step, Metrics& metrics);

  SkippedSteps skipped_steps_;
  BestModel best_;
  int64_t trained_step_ = first_step_ - 1;
  int64_t finished_step_ = first_step_ - 1;
  bool step_begun_ = false;
  absl::Time next_catch_up_ = absl::InfinitePast();
  telemetry::TraceContext trace_;
  absl::Time trace_start_;
  std::optional<telemetry::ScopedTraceContext> trace_scope_;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_STEP_LOOP_H_
