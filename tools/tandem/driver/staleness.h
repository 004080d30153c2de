// How old the samples of a step are.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_

#include <cstdint>
#include <vector>

#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// training/off_policy/trajectory_staleness/{mean,max}: by how many versions the oldest that sampled
// a token of a completion lags behind `version`, the one that is trained. And
// training/off_policy/trajectory_spans/mean: versions that sampled one completion.
void AddStalenessMetrics(const std::vector<Group>& groups, int64_t version, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_STALENESS_H_
