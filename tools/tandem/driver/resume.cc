#include "tools/tandem/driver/resume.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"

namespace tandem::driver {
namespace {

// The checkpoint itself is at fault: an older one may do.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsOutOfRange(status);
}

absl::StatusOr<int64_t> LargestVersion(RolloutFleet* fleet) {
  int64_t largest = 0;
  if (fleet == nullptr) return largest;
  for (const RolloutFleet::Replica& replica : fleet->replicas()) {
    const auto info = RolloutFleet::GetServerInfo(replica);
    // A replica that does not respond yet gets its weights from this run before it serves.
    if (!info.ok() && fleet->replicas_may_change()) continue;
    RETURN_IF_ERROR(info.status());
    largest = std::max<int64_t>(largest, info->policy_version());
  }
  return largest;
}

}  // namespace

absl::StatusOr<std::vector<checkpoint::RunCheckpoint>> FindCheckpoints(const ResumeRequest& request,
                                                                       const std::string& run_dir) {
  if (request.folder.empty()) return checkpoint::ListCheckpoints(run_dir + "/checkpoints");
  std::error_code error;
  const std::string folder = std::filesystem::absolute(request.folder).lexically_normal().string();
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("--resume: no folder ", folder));
  }
  return std::vector<checkpoint::RunCheckpoint>{{0, folder}};
}

absl::StatusOr<ResumePoint> Resume(const std::vector<checkpoint::RunCheckpoint>& candidates,
                                   const RunIdentity& run, TrainerClient& trainer,
                                   RolloutFleet* fleet, RunFolder& folder, Progress& progress) {
  ASSIGN_OR_RETURN(const int64_t min_policy_version, LargestVersion(fleet));
  std::vector<std::string> problems;
  for (const checkpoint::RunCheckpoint& candidate : candidates) {
    const auto loaded = trainer.LoadCheckpoint(candidate.path, min_policy_version);
    absl::StatusOr<v1::DriverState> state =
        loaded.ok() ? ParseDriverState(loaded->driver_state(), candidate.path)
                    : absl::StatusOr<v1::DriverState>(loaded.status());
    if (!state.ok()) {
      if (!IsDamage(state.status())) return state.status();
      problems.push_back(std::string(state.status().message()));
      progress.Note(absl::StrCat("checkpoint ", candidate.path,
                                 " cannot be used: ", state.status().message()));
      continue;
    }
    std::vector<std::string> notes;
    RETURN_IF_ERROR(CheckDriverState(run, *state, notes));
    for (const std::string& note : notes) progress.Note(note);
    ResumePoint point;
    point.policy_version = loaded->policy_version();
    ASSIGN_OR_RETURN(point.rows, folder.Truncate(*state));
    point.state = *std::move(state);
    progress.Report(absl::StrCat("resuming after step ", point.state.step(), ", from ",
                                 candidate.path, ", as version ", point.policy_version));
    return point;
  }
  return absl::DataLossError(
      absl::StrCat("no checkpoint can be loaded:\n  ", absl::StrJoin(problems, "\n  ")));
}

absl::StatusOr<int64_t> VersionShift(TrainerClient& trainer, const ResumePoint* resume) {
  if (resume == nullptr) {
    ASSIGN_OR_RETURN(const auto info, trainer.GetModelInfo());
    return info.policy_version();
  }
  const auto& metrics = resume->state.metrics();
  const auto found = metrics.find("training/policy_version");
  if (found == metrics.end()) return 0;  // a checkpoint of an older release
  return resume->policy_version - static_cast<int64_t>(found->second);
}

absl::Status RestoreInitialState(TrainerClient& trainer, RolloutFleet* fleet, Progress& progress) {
  ASSIGN_OR_RETURN(const int64_t min_policy_version, LargestVersion(fleet));
  ASSIGN_OR_RETURN(const auto before, trainer.GetModelInfo());
  // Also at step 0: a step that an earlier driver sent may still be running.
  ASSIGN_OR_RETURN(const auto loaded, trainer.LoadInitialState(min_policy_version));
  if (before.step() > 0) {
    progress.Note(absl::StrCat("the trainer was at step ", before.step(),
                               ", but saved no checkpoint; restored its initial state as version ",
                               loaded.policy_version()));
  }
  return absl::OkStatus();
}

}  // namespace tandem::driver
