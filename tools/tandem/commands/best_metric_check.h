// Checks trainer.save_best before anything starts: a metric that no step measures keeps no model.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_BEST_METRIC_CHECK_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_BEST_METRIC_CHECK_H_

#include "absl/status/status.h"
#include "tools/tandem/commands/run_checks.h"

namespace tandem::commands {

// INVALID_ARGUMENT, with the names that the run measures and the nearest, for a metric of evaluations
// that the run does not measure and for a name that is of no group of metrics. Metrics of training
// steps depend on trainer and algorithm: the loop tells after the first step that lacks one.
absl::Status CheckBestMetric(const CheckedRun& run);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_BEST_METRIC_CHECK_H_
