#include "tools/tandem/driver/checkpoint_schedule.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"

namespace tandem::driver {

absl::Status CheckpointSchedule::Save(int64_t step, v1::DriverState state, Metrics& metrics) {
  const absl::Time begin = absl::Now();
  RETURN_IF_ERROR(folder_.CheckModelSpace());
  RETURN_IF_ERROR(folder_.SyncMetrics());  // a durable checkpoint implies durable lines up to it
  for (const auto& [name, value] : metrics) (*state.mutable_metrics())[name] = value;
  state.set_step(step);
  state.set_run_id(trainer_.run_id());
  state.mutable_inputs()->Assign(inputs_.begin(), inputs_.end());
  const auto response =
      trainer_.SaveSharded(folder_.checkpoint_path(step), state.SerializeAsString());
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

void CheckpointSchedule::Note(const trainer::v1::CheckpointOutcome& outcome, Metrics& metrics) {
  if (!outcome.error().empty()) {
    NoteFailure(outcome.step(), outcome.error(), metrics);
    return;
  }
  metrics["timing_s/write_checkpoint"] = outcome.write_seconds();
  metrics["checkpoint/bytes"] = static_cast<double>(outcome.size_bytes());
}

void CheckpointSchedule::NoteFailure(int64_t step, absl::string_view error, Metrics& metrics) {
  metrics["checkpoint/failures"] += 1;
  progress_.Note(absl::StrCat("the checkpoint of step ", step, " could not be written: ", error,
                              "; training continues"));
}

absl::Status CheckpointSchedule::SaveModel() {
  RETURN_IF_ERROR(folder_.Begin());  // needed if no step was left to do
  RETURN_IF_ERROR(folder_.Check());
  folder_.ReleaseModelSpace();
  ASSIGN_OR_RETURN(
      const auto response,
      trainer_.SaveCheckpoint(folder_.model_path(), trainer::v1::CHECKPOINT_FORMAT_HUGGING_FACE));
  Metrics ignored;
  if (response.has_earlier()) Note(response.earlier(), ignored);
  return folder_.Check();  // if the folder is gone, so is the model
}

}  // namespace tandem::driver
