// Means of the scores of each reward in reward.rewards.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PART_SCORES_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PART_SCORES_H_

#include <map>
#include <string>
#include <vector>

#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// By label: the mean over the completions that the reward applies to. Empty without reward.rewards.
std::map<std::string, double> MeanPartScores(const std::vector<Group>& groups);

// Adds reward/scores/LABEL/mean.
void AddPartScoreMetrics(const std::vector<Group>& groups, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PART_SCORES_H_
