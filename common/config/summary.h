// Computes what a configuration's batch sizes amount to.
#ifndef TANDEM_COMMON_CONFIG_SUMMARY_H_
#define TANDEM_COMMON_CONFIG_SUMMARY_H_

#include <cstdint>
#include <string>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// The sizes of one training step, summed over all ranks.
struct BatchArithmetic {
  int64_t prompts = 0;
  int64_t samples = 0;
  int64_t mini_batch_prompts = 0;
  int64_t optimizer_steps = 0;  // of all epochs
};
BatchArithmetic ComputeBatch(const v1::RunConfig& config);

// "32 prompts x 8 samples = 256 samples = 4 optimizer steps".
std::string DescribeBatch(const v1::RunConfig& config);

// Whether completions are episodes of several turns.
bool PlaysEpisodes(const v1::RunConfig& config);

// The most tokens that may follow a prompt: rollout.max_tokens, or what environment.max_tokens says
// of all turns of an episode.
int64_t LongestCompletion(const v1::RunConfig& config);

// The key that says so.
std::string LongestCompletionKey(const v1::RunConfig& config);

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_SUMMARY_H_
