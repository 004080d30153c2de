// Prints a run's plan before it begins and its summary after it ends.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/training_loop.h"

namespace tandem::commands {

// Prints to stderr: the model, what of it each rank keeps (`policy_state` bytes, if known), the data,
// and the batch arithmetic.
void PrintPlan(const config::v1::RunConfig& config, const model::ModelSpec& spec,
               const driver::PromptSource& train, bool supervised,
               std::optional<int64_t> policy_state);

// Prints rewards and evaluations to stderr, as a plot and a table, unless `quiet`, and one JSON
// object to stdout.
void PrintSummary(const config::v1::RunConfig& config, const driver::RunSummary& summary,
                  bool quiet);

// Plots points (x, y) as text in `width` columns and `height` rows, with labelled axes.
std::string PlotPoints(const std::vector<std::pair<double, double>>& points, int width, int height);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_
