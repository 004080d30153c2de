// Plays the groups of a list of prompts and waits for all of them: evaluations of several turns.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PLAY_GROUPS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PLAY_GROUPS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/episode.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::driver {

// Like RolloutFleet::Generate(), with episodes. A lost episode is an error: a mean over the others
// would be that of other prompts.
absl::StatusOr<std::vector<Group>> PlayGroups(std::vector<Prompt> prompts, RolloutFleet& fleet,
                                              const RolloutFleet::GenerateOptions& options,
                                              const EpisodeFactory& make_episode);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PLAY_GROUPS_H_
