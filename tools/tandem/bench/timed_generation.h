// The time that a batch of random prompts takes a rollout.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_
#define TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_spec.h"
#include "tools/tandem/bench/bench.h"
#include "tools/tandem/driver/rollout_fleet.h"

namespace tandem::bench {

struct GenerationWork {
  int64_t batch = 32;  // prompts
  int64_t n = 1;       // samples of each
  int64_t prompt_tokens = 64;
  int64_t new_tokens = 128;  // of each sample
};

// Overrides by which a rollout has room for all of it at once, so that nothing is preempted or
// queued. element_bytes: of the type of computation. INVALID_ARGUMENT, a misuse, where a sample
// would be longer than the model's context; length_flags: what would make it shorter.
absl::StatusOr<std::vector<std::string>> RoomFor(
    const GenerationWork& work, const model::ModelSpec& spec, int64_t element_bytes,
    absl::string_view length_flags = "--prompt-tokens or --new-tokens");

struct TimedGeneration {
  double seconds = 0;  // from the first request to the last token
  std::vector<driver::Group> groups;
};

// New ids each time, so nothing is found in the prefix cache; temperature 1, top-k 50 and no end
// before new_tokens. INTERNAL where a sample has another length.
absl::StatusOr<TimedGeneration> TimeGeneration(driver::RolloutFleet& fleet, TorchRandint& randint,
                                               const GenerationWork& work);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_TIMED_GENERATION_H_
