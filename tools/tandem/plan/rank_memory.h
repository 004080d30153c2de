// Predicts the memory of one trainer rank from the model's shape alone.
//
// The prediction follows a training step tensor by tensor, like services/trainer/fsdp: it gathers
// units, runs blocks, keeps and frees graphs, fills gradient buffers and reduces them. The peak sum
// is what the trainer reports as perf/peak_tensor_bytes.
//
//   const RankMemory memory = PredictRankMemory(spec, setup, workload);
//   memory.peak.total();                          // bytes, reached at memory.peak.place
//   memory.peak.of(MemoryKind::kActivations);     // part of them
#ifndef TANDEM_TOOLS_TANDEM_PLAN_RANK_MEMORY_H_
#define TANDEM_TOOLS_TANDEM_PLAN_RANK_MEMORY_H_

#include <cstdint>

#include "common/model/model_spec.h"
#include "common/rank_setup/rank_setup.h"
#include "tools/tandem/plan/memory_ledger.h"

namespace tandem::plan {

// With `ep` the router decides how many rows the experts of a rank compute. A plan has room for this
// many on the fullest rank, over an even share; a run reports experts/largest_rank_load.
inline constexpr double kPlannedExpertLoad = 1.25;

// The fullest micro-batch of a rank, and the number of micro-batches.
struct RankWorkload {
  int64_t tokens = 0;     // of one micro-batch, over all ranks that share its sequences
  int64_t rows = 0;       // those of them that enter the loss
  int64_t sequences = 1;  // of one micro-batch
  int64_t longest_sequence = 0;
  int64_t micro_batches = 1;  // of one optimizer step
  int64_t step_tokens = 0;    // packed tokens that the rank holds during a training step
  int64_t step_rows = 0;
  bool computes_old_logprobs = false;
  double expert_load = kPlannedExpertLoad;  // without ep it has no effect
  // Distinct prompts of one micro-batch, and the most placeholders of images in each; of a model
  // without a vision tower they have no effect.
  int64_t image_prompts = 0;
  int64_t rows_per_prompt = 0;
  int64_t step_image_prompts = 0;  // distinct prompts of a training step
};

struct RankMemory {
  MemorySnapshot peak;       // on the device
  int64_t host_bytes = 0;    // that `offload: cpu` keeps in host memory
  int64_t disk_bytes = 0;    // that `offload: disk` keeps in files
  int64_t pixel_bytes = 0;   // of prepared images in host memory (model::PixelCache); no tensors
  int64_t policy_state = 0;  // the policy's parameters, gradients and moments, wherever they are
  int64_t resident = 0;      // tensors that stay from step to step: shards and moments
  int64_t largest_unit = 0;  // bytes of the largest unit, gathered, in compute dtype
};

RankMemory PredictRankMemory(const model::ModelSpec& spec, const setup::RankSetup& setup,
                             const RankWorkload& workload);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_RANK_MEMORY_H_
