// Whether this machine can hold a run that is about to start: cores for the processes of --local,
// and memory for the plan.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_MACHINE_CHECK_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_MACHINE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/config/place.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/commands/dry_run.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::commands {

// Warns on stderr if --local starts more processes than there are cores; RESOURCE_EXHAUSTED if far
// more, unless options.force is set. See CheckProcesses(). A dry run calls it, too.
absl::Status CheckLocalProcesses(const RunOptions& options, const config::v1::RunConfig& config,
                                 bool needs_rollouts);

struct MachineNeeds {
  const config::v1::RunConfig& config;
  const config::Places& places;
  const model::ModelSpec& spec;
  int64_t longest_prompt = 0;  // in tokens
  bool needs_rollouts = true;
};

// CheckLocalProcesses(), then CheckPlanFits(), for a run that starts. Reads only the kind of run
// from `dry_run`.
absl::Status CheckMachine(const RunOptions& options, const MachineNeeds& needs,
                          const DryRunOptions& dry_run);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_MACHINE_CHECK_H_
