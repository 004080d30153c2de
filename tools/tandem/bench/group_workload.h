// The work of one step of group-based reinforcement learning: some prompts, several samples of
// each, of lengths that differ; with the prompt shared by its samples, and the same work without.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_GROUP_WORKLOAD_H_
#define TANDEM_TOOLS_TANDEM_BENCH_GROUP_WORKLOAD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::bench {

struct GroupWorkload {
  int64_t prompts = 64;
  int64_t samples = 8;  // of each prompt
  int64_t prompt_tokens = 256;
  int64_t least_new_tokens = 16;  // a prompt's samples are as long as each other
  int64_t most_new_tokens = 128;
};

// Runs it `repeats` times in turn with and without sharing, and each prefill alone. Without: as
// many prompts of ids of their own as there are samples, one sample each, of the same lengths.
// Returns the medians, and the prompt tokens that the rollout says it has computed.
absl::StatusOr<nlohmann::json> RunGroupWorkload(driver::RolloutFleet& fleet, TorchRandint& randint,
                                                const GroupWorkload& workload, int repeats);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_GROUP_WORKLOAD_H_
