#include "tools/tandem/commands/machine_check.h"

#include <numeric>
#include <string>

#include "absl/strings/str_format.h"
#include "common/host/control_group.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "tools/tandem/commands/run_checks.h"

namespace tandem::commands {

absl::Status CheckLocalProcesses(const RunOptions& options, const config::v1::RunConfig& config,
                                 bool needs_rollouts) {
  if (!options.local) return absl::OkStatus();
  LocalProcesses processes{.trainer_ranks = config.trainer().ranks(), .cores = host::UsableCores()};
  const auto& ranks = options.replica_ranks;
  if (needs_rollouts) {
    processes.rollout_ranks =
        ranks.empty() ? config.rollout().replicas() * config.rollout().tensor_model_parallel_size()
                      : std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
  }
  ASSIGN_OR_RETURN(const std::string warning, CheckProcesses(processes, options.force));
  if (!warning.empty()) absl::FPrintF(stderr, "warning  %s\n", text::Printable(warning));
  return absl::OkStatus();
}

absl::Status CheckMachine(const RunOptions& options, const MachineNeeds& needs,
                          const DryRunOptions& dry_run) {
  RETURN_IF_ERROR(CheckLocalProcesses(options, needs.config, needs.needs_rollouts));
  return CheckPlanFits(needs.config, needs.places, needs.spec, needs.longest_prompt, dry_run,
                       options);
}

}  // namespace tandem::commands
