#include "tools/tandem/commands/run_start.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/io/model_folder_writer.h"
#include "common/status/status_macros.h"
#include "common/text/count.h"
#include "tools/tandem/driver/reward_parts.h"
#include "tools/tandem/driver/run_id.h"

namespace tandem::commands {
namespace {

// Whether the checkpoint is in this run's own folder, which then continues too.
bool IsWithin(const std::string& path, const std::string& folder) {
  const std::filesystem::path relative = std::filesystem::weakly_canonical(path).lexically_relative(
      std::filesystem::weakly_canonical(folder));
  return !relative.empty() && *relative.begin() != "..";
}

// FAILED_PRECONDITION if the trainer has applied steps, which a run that begins with step 1 cannot
// follow.
absl::Status CheckTrainerIsAtStart(const std::string& run_dir, Session& session) {
  ASSIGN_OR_RETURN(const auto info, session.trainer().GetModelInfo());
  if (info.step() == 0) return absl::OkStatus();
  const std::vector<checkpoint::RunCheckpoint> checkpoints =
      checkpoint::ListCheckpoints(run_dir + "/checkpoints");
  const std::string resume =
      checkpoints.empty()
          ? absl::StrCat(run_dir, " has no checkpoint; --resume=DIR continues from one elsewhere")
          : absl::StrCat("--resume continues from ", checkpoints[0].path);
  return absl::FailedPreconditionError(
      absl::StrCat("the trainer at ", session.trainer().address(), " is at step ", info.step(),
                   ", but this run begins with step 1. ", resume,
                   "; --take-over restores the trainer's initial state and gives up its ",
                   text::Count(info.step(), "step")));
}

// Brings the trainer to where the run begins, or refuses a trainer that is elsewhere.
absl::StatusOr<std::optional<driver::ResumePoint>> FindStart(RunStart& start,
                                                             const driver::RunIdentity& run,
                                                             Session& session,
                                                             driver::Progress& progress) {
  if (start.candidates.empty()) {
    if (!start.resume) {
      const absl::Status at_start = CheckTrainerIsAtStart(start.folder.path(), session);
      if (!at_start.ok()) return session.Explain(at_start);
      return std::nullopt;
    }
    const absl::Status begun =
        driver::RestoreInitialState(session.trainer(), session.fleet_or_null(), progress);
    if (!begun.ok()) return session.Explain(begun);
    return std::nullopt;
  }
  absl::StatusOr<driver::ResumePoint> point = driver::Resume(
      start.candidates, run, session.trainer(), session.fleet_or_null(), start.folder, progress);
  if (!point.ok()) return session.Explain(point.status());
  return *std::move(point);
}

}  // namespace

void AllowResumeFolder(const RunOptions& options, config::v1::RunConfig& config) {
  if (options.resume_folder.empty() || IsWithin(options.resume_folder, config.run_dir())) return;
  // The folder may be the checkpoint itself, and roots are what it lies under.
  const std::filesystem::path folder = std::filesystem::absolute(options.resume_folder);
  config.mutable_trainer()->add_checkpoint_roots(
      (folder.has_filename() ? folder : folder.parent_path()).parent_path().string());
}

absl::StatusOr<RunStart> PrepareRunFolder(const RunOptions& options,
                                          const config::v1::RunConfig& config, Session& session,
                                          driver::Progress& progress) {
  std::vector<checkpoint::RunCheckpoint> candidates;
  if (options.resume) {
    ASSIGN_OR_RETURN(candidates,
                     driver::FindCheckpoints({options.resume_folder}, config.run_dir()));
  }
  driver::RunFolder::Options folder_options;
  folder_options.starts_services = options.local;
  folder_options.note = [&progress](const std::string& text) { progress.Note(text); };
  folder_options.interrupted = [&session] { return session.interrupted(); };
  const bool goes_on = !candidates.empty() && IsWithin(candidates[0].path, config.run_dir());
  absl::StatusOr<driver::RunFolder> folder =
      goes_on ? driver::RunFolder::Reopen(config, folder_options)
              : driver::RunFolder::Create(config, folder_options);
  RETURN_IF_ERROR(folder.status());
  session.Keep(folder->lock());
  if (options.resume && candidates.empty()) {
    progress.Note(
        absl::StrCat("no checkpoint in ", config.run_dir(), ": the run starts with step 1"));
  }
  ASSIGN_OR_RETURN(std::string run_id, driver::ChooseRunId(folder->path(), options.resume));
  RETURN_IF_ERROR(folder->KeepRunId(run_id));
  return RunStart{*std::move(folder), std::move(run_id), std::move(candidates),
                  options.resume || options.take_over, driver::RunsPython(config.reward())};
}

absl::StatusOr<std::optional<driver::ResumePoint>> ResumeIfAsked(RunStart& start,
                                                                 const driver::RunIdentity& run,
                                                                 Session& session,
                                                                 driver::Progress& progress) {
  ASSIGN_OR_RETURN(std::optional<driver::ResumePoint> point,
                   FindStart(start, run, session, progress));
  // Only now: the trainer may have refused the run, whose earlier logs must stay in that case.
  if (start.rewards_in_python) {
    RETURN_IF_ERROR(start.folder.MoveLogsAside());
  }
  return point;
}

absl::Status ReserveModelSpace(const config::v1::RunConfig& config, RunStart& start,
                               Session& session) {
  // The tokenizer's files, config.json and the safetensors headers beside the parameters.
  constexpr int64_t kHeaderBytes = 16 << 20;
  const auto info = session.trainer().GetModelInfo();
  if (!info.ok()) return session.Explain(info.status());
  const int64_t element_bytes = info->dtype() == "bfloat16" ? 2 : 4;
  return start.folder.ReserveModelSpace(info->num_parameters() * element_bytes +
                                            io::SideFileBytes(config.model().path()) + kHeaderBytes,
                                        !config.trainer().save_best().empty());
}

}  // namespace tandem::commands
