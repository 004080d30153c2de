// tandem train --dry-run: prints the plan of a run without starting services or reading weights.
// Also resolves `trainer.mesh: auto` before a run starts.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/config/place.h"
#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/commands/run_options.h"

namespace tandem::commands {

struct DryRunOptions {
  std::string hardware;  // empty: this machine
  std::string output;    // file for the configuration with the plan's values; empty: none
  bool json = false;
  bool supervised = false;     // no rollouts
  bool by_preference = false;  // `tandem dpo`
};

// Plans a run for other machines: needs neither data nor the model's folder, and allows choices
// that this build cannot run. Prints the plan; RESOURCE_EXHAUSTED if it does not fit.
absl::Status PlanElsewhere(const RunOptions& run, const DryRunOptions& options);

// Plans a run of the validated configuration on this machine. Prints and fails like
// PlanElsewhere().
absl::Status PlanHere(const config::v1::RunConfig& config, const config::Places& places,
                      const model::ModelSpec& spec, const DryRunOptions& options);

// Bytes of the policy's parameters, gradients and optimizer on one trainer rank, as the plan counts
// them. nullopt if there is no plan: trainer.mesh is auto, or the configuration has an error that
// another check reports.
std::optional<int64_t> PlannedPolicyState(const config::v1::RunConfig& config,
                                          const config::Places& places,
                                          const model::ModelSpec& spec,
                                          const DryRunOptions& options);

// Replaces `trainer.mesh: auto` by the plan's values and, unless `quiet`, prints the reasons to
// stderr; reads only the kind of run from `options`. Does nothing without auto. RESOURCE_EXHAUSTED
// if nothing fits.
absl::Status ResolveAutoMesh(const config::Places& places, const model::ModelSpec& spec,
                             const DryRunOptions& options, bool quiet,
                             config::v1::RunConfig& config);

// For a run that is about to start: RESOURCE_EXHAUSTED if the plan of --dry-run does not fit, with
// options.force a warning on stderr. Checks what can be known here: services that run elsewhere only
// against trainer.memory_megabytes, and no machine with GPUs, whose memory the plan would have to
// read. Plans for prompts of `longest_prompt` tokens, those of the data, instead of
// data.max_prompt_length. Reads only the kind of run from `dry_run`.
absl::Status CheckPlanFits(const config::v1::RunConfig& config, const config::Places& places,
                           const model::ModelSpec& spec, int64_t longest_prompt,
                           const DryRunOptions& dry_run, const RunOptions& options);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_
