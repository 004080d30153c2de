// tandem train --dry-run: the plan of a run, without a service started or a weight read; and what
// `trainer.mesh: auto` becomes before a run starts.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_

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

// Plans for machines that are not here: neither data nor the model's folder is needed, and choices
// that this build cannot run are allowed. Prints the plan; RESOURCE_EXHAUSTED where it does not
// fit.
absl::Status PlanElsewhere(const RunOptions& run, const DryRunOptions& options);

// Plans for this machine what has been read and checked. Prints as PlanElsewhere().
absl::Status PlanHere(const config::v1::RunConfig& config, const config::Places& places,
                      const model::ModelSpec& spec, const DryRunOptions& options);

// Replaces `trainer.mesh: auto` by the plan's values, and says why on stderr; of `options` only the
// kind of run counts. Without auto nothing is done. RESOURCE_EXHAUSTED where nothing fits.
absl::Status ResolveAutoMesh(const config::Places& places, const model::ModelSpec& spec,
                             const DryRunOptions& options, config::v1::RunConfig& config);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_DRY_RUN_H_
