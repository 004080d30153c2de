// Times a rollout on a batch of random prompts.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_
#define TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_spec.h"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/bench/random_pictures.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::bench {

struct GenerationWork {
  int64_t batch = 32;          // prompts
  int64_t n = 1;               // samples per prompt
  int64_t prompt_tokens = 64;  // of text
  int64_t new_tokens = 128;    // per sample
  // In every prompt, beside its text; null: none. Must outlive the work.
  RandomPictures* pictures = nullptr;

  int64_t prompt_length() const {
    return prompt_tokens + (pictures == nullptr ? 0 : pictures->tokens_per_prompt());
  }
};

// Returns overrides that give a rollout room for the whole batch at once, so that it preempts and
// queues nothing. element_bytes: size of the compute type. INVALID_ARGUMENT, a misuse, if a sample
// would exceed the model's context; length_flags: the flags that shorten it, for the error.
absl::StatusOr<std::vector<std::string>> RoomFor(
    const GenerationWork& work, const model::ModelSpec& spec, int64_t element_bytes,
    absl::string_view length_flags = "--prompt-tokens or --new-tokens");

struct TimedGeneration {
  double seconds = 0;  // from the first request to the last token
  std::vector<driver::Group> groups;
};

// The prompts of the work, with ids and pictures that no earlier one had.
std::vector<driver::Prompt> DrawPrompts(TorchRandint& randint, const GenerationWork& work);

// Generates with temperature 1, top-k 50, and no stop before new_tokens. INTERNAL if a sample has
// another length.
absl::StatusOr<TimedGeneration> TimePrompts(driver::RolloutFleet& fleet,
                                            std::vector<driver::Prompt> prompts,
                                            const GenerationWork& work);

// Draws new prompts for each call, so that the prefix cache never hits.
absl::StatusOr<TimedGeneration> TimeGeneration(driver::RolloutFleet& fleet, TorchRandint& randint,
                                               const GenerationWork& work);

// Generates once more, and returns the most blocks of the KV cache, over all replicas, that were in use
// when looked at, every 100 ms. Looking takes time from a rollout that uses every core, so nothing else
// is measured meanwhile.
absl::StatusOr<int64_t> CountKvBlocks(driver::RolloutFleet& fleet, TorchRandint& randint,
                                      const GenerationWork& work);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_
