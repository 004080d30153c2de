// The soft overlong punishment of DAPO (2503.14476, equation 13): completions that come close to
// the limit of tokens lose reward gradually, so that the policy learns to finish instead of being
// judged on what was cut off.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_

#include <cstdint>
#include <vector>

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// What a completion of `num_tokens` loses, from -penalty_factor to 0: nothing up to
// max_tokens - len tokens, then in equal steps up to penalty_factor at max_tokens, and beyond it in
// the same steps (as verl; a completion is never longer).
double OverlongPenalty(int64_t num_tokens, int64_t max_tokens,
                       const config::v1::OverlongBufferConfig& buffer);

// Adds the penalty to the reward of every completion and baseline, where
// reward.overlong_buffer.enable says so; the scores stay.
void PunishOverlong(const config::v1::RunConfig& config, std::vector<Group>& groups);

// Over completions: reward/overlong_penalty/mean, and reward/overlong_ratio, the share that lost
// something.
void AddOverlongMetrics(const std::vector<Group>& groups, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_
