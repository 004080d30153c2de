// The generation of one step of group-based reinforcement learning: several samples per prompt, of
// different lengths; with the samples sharing their prompt, and without.
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
  int64_t samples = 8;  // per prompt
  int64_t prompt_tokens = 256;
  int64_t least_new_tokens = 16;  // all samples of a prompt have the same length
  int64_t most_new_tokens = 128;
};

// Runs the workload `repeats` times, alternating with and without sharing, and each prefill alone.
// Without sharing, every sample has a prompt of its own; the lengths are the same. Returns the
// medians, and the number of prompt tokens that the rollout reports as computed.
absl::StatusOr<nlohmann::json> RunGroupWorkload(driver::RolloutFleet& fleet, TorchRandint& randint,
                                                const GroupWorkload& workload, int repeats);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_GROUP_WORKLOAD_H_
