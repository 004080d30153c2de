// The soft overlong punishment of DAPO (2503.14476, equation 13): completions close to the token
// limit lose reward gradually, so that the policy learns to finish instead of being judged on
// truncated text.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_

#include <cstdint>
#include <vector>

#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/driver/completion.h"
#include "tools/tandem/driver/run_folder.h"

namespace tandem::driver {

// The penalty of a completion of `num_tokens`, from -penalty_factor to 0: 0 up to
// max_tokens - len tokens, then linear down to -penalty_factor at max_tokens, and with the same
// slope beyond (as in verl; no completion is longer).
double OverlongPenalty(int64_t num_tokens, int64_t max_tokens,
                       const config::v1::OverlongBufferConfig& buffer);

// With reward.overlong_buffer.enable, adds the penalty to the reward of every completion and
// baseline; the scores stay.
void AddOverlongPenalty(const config::v1::RunConfig& config, std::vector<Group>& groups);

// Adds reward/overlong_penalty/mean and reward/overlong_ratio, the share of completions that lost
// reward.
void AddOverlongMetrics(const std::vector<Group>& groups, Metrics& metrics);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_OVERLONG_PENALTY_H_
