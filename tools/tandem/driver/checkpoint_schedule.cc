#include "tools/tandem/driver/checkpoint_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

CheckpointSchedule::CheckpointSchedule(const config::v1::RunConfig& config, TrainerClient& trainer,
                                       RunFolder& folder, Progress& progress,
                                       const RunInputs& inputs)
    : trainer_(trainer),
      folder_(folder),
      progress_(progress),
      inputs_(inputs),
      times_(config.trainer(), absl::Now()) {
  if (times_.saves()) return;
  progress_.Note(
      "no checkpoints, and an interrupt loses every step: trainer.save_freq and "
      "trainer.save_interval_seconds are 0");
}

absl::Status CheckpointSchedule::AfterStep(int64_t step, v1::DriverState state, Metrics& metrics) {
  if (!times_.saves()) return absl::OkStatus();
  state.set_step(step);
  state.set_run_id(trainer_.run_id());
  state.mutable_inputs()->Assign(inputs_.begin(), inputs_.end());
  for (const auto& [name, value] : metrics) (*state.mutable_metrics())[name] = value;
  last_ = std::move(state);
  const absl::Time now = absl::Now();
  if (!times_.IsDue(step, now)) return absl::OkStatus();
  times_.OnSave(now);
  return Save(metrics);
}

absl::Status CheckpointSchedule::Save(Metrics& metrics) {
  const absl::Time begin = absl::Now();
  const int64_t step = last_->step();
  RETURN_IF_ERROR(folder_.CheckModelSpace());
  begun_step_ = step;
  // The lines before the checkpoint; the metrics of its own step are in it.
  RETURN_IF_ERROR(folder_.SyncMetrics());
  const auto response = trainer_.SaveSharded(
      folder_.checkpoint_path(step), last_->SerializeAsString(), TrainerClient::SaveUntil::kCopied);
  metrics["timing_s/save_checkpoint"] = absl::ToDoubleSeconds(absl::Now() - begin);
  if (!response.ok()) {
    if (IsLeaseLost(response.status())) return response.status();
    // A trainer that no longer responds is an error; a full disk is not.
    RETURN_IF_ERROR(trainer_.GetModelInfo().status()) << response.status().message();
    NoteFailure(step, response.status().message(), metrics);
  } else if (response->has_earlier()) {
    Note(response->earlier(), metrics);
  }
  return absl::OkStatus();
}

void CheckpointSchedule::SaveLast() {
  if (!times_.saves()) return;
  if (!last_.has_value()) {
    progress_.Note("interrupted before a step of this process was complete: nothing to save");
    return;
  }
  if (const absl::Status saved = TrySaveLast(); !saved.ok()) {
    progress_.Note(absl::StrCat("interrupted after step ", last_->step(),
                                ", which could not be saved: ", saved.message()));
    return;
  }
  progress_.Note(absl::StrCat("interrupted after step ", last_->step(), "; its checkpoint is ",
                              folder_.checkpoint_path(last_->step()),
                              "; --resume continues from it"));
}

absl::Status CheckpointSchedule::TrySaveLast() {
  const int64_t step = last_->step();
  if (written_step_ == step) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto info, trainer_.GetModelInfo());
  if (info.step() != step) {
    return absl::FailedPreconditionError(
        absl::StrCat("the trainer is at step ", info.step(), ", not at step ", step));
  }
  progress_.Report(absl::StrCat("interrupted: saving a checkpoint of step ", step,
                                " (a second interrupt ends at once, without it)"));
  RETURN_IF_ERROR(folder_.SyncMetrics());
  return trainer_
      .SaveSharded(folder_.checkpoint_path(step), last_->SerializeAsString(),
                   TrainerClient::SaveUntil::kWritten)
      .status();
}

void CheckpointSchedule::Note(const trainer::v1::CheckpointOutcome& outcome, Metrics& metrics) {
  if (!outcome.error().empty()) {
    NoteFailure(outcome.step(), outcome.error(), metrics);
    return;
  }
  written_step_ = outcome.step();
  metrics["timing_s/write_checkpoint"] = outcome.write_seconds();
  metrics["checkpoint/bytes"] = static_cast<double>(outcome.size_bytes());
}

void CheckpointSchedule::NoteFailure(int64_t step, absl::string_view error, Metrics& metrics) {
  metrics["checkpoint/failures"] += 1;
  progress_.Note(absl::StrCat("the checkpoint of step ", step, " could not be written: ", error,
                              "; training continues"));
}

absl::Status CheckpointSchedule::SaveEnd() {
  if (!times_.saves() || !last_.has_value() || begun_step_ == last_->step()) {
    return absl::OkStatus();
  }
  Metrics ignored;
  if (const absl::Status space = folder_.CheckModelSpace(); !space.ok()) {
    NoteFailure(last_->step(), space.message(), ignored);
    return absl::OkStatus();
  }
  return Save(ignored);
}

absl::Status CheckpointSchedule::SaveModel() {
  RETURN_IF_ERROR(folder_.Begin());  // needed if no step was left to do
  RETURN_IF_ERROR(folder_.Check());
  RETURN_IF_ERROR(SaveEnd());
  folder_.ReleaseModelSpace();
  ASSIGN_OR_RETURN(
      const auto response,
      trainer_.SaveCheckpoint(folder_.model_path(), trainer::v1::CHECKPOINT_FORMAT_HUGGING_FACE));
  Metrics ignored;
  if (response.has_earlier()) Note(response.earlier(), ignored);
  return folder_.Check();  // if the folder is gone, so is the model
}

}  // namespace tandem::driver
