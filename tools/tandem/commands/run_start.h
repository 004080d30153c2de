// How a run that writes checkpoints begins: with a folder of its own, or from where an interrupted
// one stood.
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
  std::string run_id;                                 // kept in the folder, see run_id.h
  std::vector<checkpoint::RunCheckpoint> candidates;  // to go on from; empty: begin with step 1
  // Whether a trainer that is ahead is put back to where this run begins, and its versions continue
  // after those of the rollouts: with --resume and --take-over.
  bool resume = false;
};

// Lets the trainer that this run starts load from the folder that --resume names.
void AllowResumeFolder(const RunOptions& options, config::v1::RunConfig& config);

// Before any process starts: locks the folder, until the session's processes have ended. A folder
// without a checkpoint begins anew, and it is said. FAILED_PRECONDITION where another run goes on
// in the folder.
absl::StatusOr<RunStart> PrepareRunFolder(const RunOptions& options,
                                          const config::v1::RunConfig& config, Session& session,
                                          driver::Progress& progress);

// Once the services are up. nullopt where the run begins with step 1.
absl::StatusOr<std::optional<driver::ResumePoint>> ResumeIfAsked(RunStart& start,
                                                                 const driver::RunIdentity& run,
                                                                 Session& session,
                                                                 driver::Progress& progress);

// Once the services are up: keeps disk space for the model that the trainer will write at the end.
absl::Status ReserveModelSpace(const config::v1::RunConfig& config, RunStart& start,
                               Session& session);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_START_H_
