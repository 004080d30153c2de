// Prints a run's plan before it begins and its summary after it ends.
#ifndef TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_
#define TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/training_loop.h"

namespace tandem::commands {

// Prints to stderr: the model, how it is sharded, the data, and the batch arithmetic.
void PrintPlan(const config::v1::RunConfig& config, const model::ModelSpec& spec,
               const driver::PromptSource& train, bool supervised);

// Prints rewards and evaluations to stderr, as a plot and a table, unless `quiet`, and one JSON
// object to stdout.
void PrintSummary(const config::v1::RunConfig& config, const driver::RunSummary& summary,
                  bool quiet);

// Plots points (x, y) as text in `width` columns and `height` rows, with labelled axes.
std::string PlotPoints(const std::vector<std::pair<double, double>>& points, int width, int height);

}  // namespace tandem::commands

#endif  // TANDEM_TOOLS_TANDEM_COMMANDS_RUN_REPORT_H_
