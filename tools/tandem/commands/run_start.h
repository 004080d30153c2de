// Starts a run that writes checkpoints: from step 1 in a new folder, or from an interrupted run's
// checkpoint.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_RUN_START_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_RUN_START_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/commands/run_options.h"
#include "tools/tandem/commands/session.h"
#include "tools/tandem/driver/progress.h"
#include "tools/tandem/driver/resume.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::commands {

struct RunStart {
  driver::RunFolder folder;
  std::string run_id;                                 // stored in the folder, see run_id.h
  std::vector<checkpoint::RunCheckpoint> candidates;  // to resume from; empty: begin with step 1
  // Whether to reset a trainer that is ahead to where this run begins, and to continue its versions
  // after those of the rollouts: with --resume or --take-over.
  bool resume = false;
  bool rewards_in_python = false;  // in processes that write into the folder's logs
};

// Allows the trainer that this run starts to load from the folder that --resume names.
void AllowResumeFolder(const RunOptions& options, config::v1::RunConfig& config);

// Call before any process starts. Locks the folder until the session's processes have ended.
// With --resume but no checkpoint, the run begins with step 1 and a note says so.
// FAILED_PRECONDITION if another run uses the folder.
absl::StatusOr<RunStart> PrepareRunFolder(const RunOptions& options,
                                          const config::v1::RunConfig& config, Session& session,
                                          driver::Progress& progress);

// Call once the services are up, before anything is published, judged or trained. nullopt if the run
// begins with step 1. FAILED_PRECONDITION if the trainer is ahead of a run that does not resume.
absl::StatusOr<std::optional<driver::ResumePoint>> ResumeIfAsked(RunStart& start,
                                                                 const driver::RunIdentity& run,
                                                                 Session& session,
                                                                 driver::Progress& progress);

// Call once the services are up. Reserves disk space for the model that the trainer writes at the
// end, and for the best one (trainer.save_best).
absl::Status ReserveModelSpace(const config::v1::RunConfig& config, RunStart& start,
                               Session& session);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_START_H_
