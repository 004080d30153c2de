// Predicts the memory of one rollout rank.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_ROLLOUT_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_ROLLOUT_MEMORY_H_

#include <cstdint>

#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/plan/hardware.h"

namespace tandem::plan {

struct RolloutMemory {
  int64_t weights = 0;      // the live arena and, if it is in this memory, the staged one
  int64_t packed = 0;       // second copies in the CPU's packed order
  int64_t kv_cache = 0;     // rollout.kv_cache_megabytes, or its default
  int64_t states = 0;       // of linear attention, for rollout.max_num_seqs sequences
  int64_t images = 0;       // rows of encoded images that are kept; on a CPU pixels, too
  int64_t transfer = 0;     // two buckets of a weight update
  int64_t temporaries = 0;  // of one engine step
  int64_t sequences = 0;    // sequences of the longest length that fit in the cache

  int64_t total() const {
    return weights + packed + kv_cache + states + images + transfer + temporaries;
  }
};

RolloutMemory PredictRolloutMemory(const config::v1::RunConfig& config,
                                   const model::ModelSpec& spec, const Hardware& hardware,
                                   int64_t bucket_bytes);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_ROLLOUT_MEMORY_H_
