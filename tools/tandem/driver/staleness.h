// Metrics of how stale the samples of a step are.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_

#include <cstdint>
#include <vector>

#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// Adds training/off_policy/trajectory_staleness/{mean,max}: for each completion, the number of
// versions from the oldest that sampled a token of it to `version`, the one that trains. And
// training/off_policy/trajectory_spans/mean: the number of versions that sampled one completion.
void AddStalenessMetrics(const std::vector<Group>& groups, int64_t version, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_
