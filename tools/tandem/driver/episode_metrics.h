// Metrics of episodes of several turns.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_METRICS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_METRICS_H_

#include <vector>

#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// Adds environment/* of the groups that train; nothing if none is an episode of several turns.
void AddEpisodeMetrics(const std::vector<Group>& groups, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_EPISODE_METRICS_H_
