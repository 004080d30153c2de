// The batch arithmetic of a training step: prompts, samples, optimizer steps, and what of them one
// rank computes at once, at most.
#ifndef TANDEM_COMMON_PLAN_BATCH_PLAN_H_
#define TANDEM_COMMON_PLAN_BATCH_PLAN_H_

#include <cstdint>

#include "common/comm/mesh_shape.h"
#include "common/plan/rank_memory.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

struct BatchPlan {
  int64_t prompts = 0;
  int64_t samples = 0;
  int64_t mini_batch_samples = 0;   // of one optimizer step
  int64_t optimizer_steps = 0;      // of one training step, all epochs
  int64_t data_ranks = 1;           // groups of ranks with sequences of their own
  int64_t longest_sequence = 0;     // tokens that the model sees of a sample, at most
  int64_t samples_per_rank = 0;     // of one optimizer step, the fullest data rank's
  int64_t micro_batch_samples = 0;  // of the longest, together
  int64_t micro_batches = 0;        // of one optimizer step, where every sample is the longest
  int64_t step_tokens = 0;          // of one training step, all ranks, at most
};

// Every sample as long as data.max_prompt_length and rollout.max_tokens allow.
BatchPlan PlanBatch(const config::v1::RunConfig& config, const comm::MeshShape& mesh);

// The fullest micro-batch of that batch.
RankWorkload WorkloadOf(const config::v1::RunConfig& config, const BatchPlan& batch);

// `sequences` of `length` tokens, all of them trained on, on each data rank: what `tandem bench
// train` does.
RankWorkload SupervisedWorkload(int64_t sequences, int64_t length, int64_t max_tokens);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_BATCH_PLAN_H_
