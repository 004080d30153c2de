// The generation of episodes of several turns, whose environment takes its time between them; beside
// single turns that sample as many tokens.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_EPISODE_WORKLOAD_H_
#define TANDEM_TOOLS_TANDEM_BENCH_EPISODE_WORKLOAD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::bench {

struct EpisodeWorkload {
  int64_t episodes = 256;  // at a time
  int64_t turns = 8;
  int64_t prompt_tokens = 64;
  int64_t turn_tokens = 32;  // sampled in each turn
  // Of the environment, after each turn but the last. By default an eighth of a turn, as in GSM8K's answers
  // with a calculator: its results have 3.3 tokens, the texts between them 26.7 (Qwen2.5's tokenizer).
  int64_t observation_tokens = 4;
  int64_t environment_ms = 100;  // per observation

  // Of an episode.
  int64_t sampled_tokens() const { return turns * turn_tokens; }
  int64_t length() const {
    return prompt_tokens + sampled_tokens() + (turns - 1) * observation_tokens;
  }
};

// Plays all episodes at once, then samples as many single turns of the same tokens, `repeats` times.
// Returns the medians, and the share of the returning turns' prompts that was found in the cache. A turn
// is sent as the driver sends it: all ids so far, to the replica of the turn before.
absl::StatusOr<nlohmann::json> RunEpisodeWorkload(driver::RolloutFleet& fleet,
                                                  TorchRandint& randint,
                                                  const EpisodeWorkload& workload, int repeats);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_EPISODE_WORKLOAD_H_
