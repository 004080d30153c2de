// The batch arithmetic of a training step: prompts, samples, optimizer steps, and the largest part
// of them that one rank computes at once.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_BATCH_PLAN_H_
#define TANDEM_TOOLS_TANDEM_PLAN_BATCH_PLAN_H_

#include <cstdint>

#include "common/comm/mesh_shape.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/plan/rank_memory.h"

namespace tandem::plan {

struct BatchPlan {
  int64_t prompts = 0;
  int64_t samples = 0;
  int64_t mini_batch_samples = 0;   // per optimizer step
  int64_t optimizer_steps = 0;      // per training step, all epochs
  int64_t data_ranks = 1;           // groups of ranks that process distinct sequences
  int64_t longest_sequence = 0;     // most tokens of a sample that the model sees
  int64_t samples_per_rank = 0;     // per optimizer step, on the fullest data rank
  int64_t micro_batch_samples = 0;  // samples of the longest length per micro-batch
  int64_t micro_batches = 0;        // per optimizer step, if every sample has the longest length
  int64_t step_tokens = 0;          // most tokens of one training step, all ranks
};

// Plans for samples that are all as long as data.max_prompt_length and rollout.max_tokens allow.
BatchPlan PlanBatch(const config::v1::RunConfig& config, const comm::MeshShape& mesh);

// Returns the fullest micro-batch of that batch. With images, which only count where the model has a
// vision tower, prompts are placeholders from end to end.
RankWorkload WorkloadOf(const config::v1::RunConfig& config, const BatchPlan& batch);

// Returns the workload of `tandem bench train`: `sequences` of `length` tokens on each data rank,
// all tokens trained on.
RankWorkload SupervisedWorkload(int64_t sequences, int64_t length, int64_t max_tokens);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_BATCH_PLAN_H_
