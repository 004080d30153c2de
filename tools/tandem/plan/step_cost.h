// Estimates how long a training step takes, roughly: enough to rank plans that all fit.
//
// compute   6 flops per parameter that a token reaches forward and backward (2001.08361, section
//           2.1), 12 x layers x q_size x length for attention, of which a causal mask leaves half (2204.02311,
//           appendix B) and a sliding window less; a third more with full recomputation; with
//           selective recomputation, which repeats the element-wise ops alone, 3% (2205.05198: 2.7%
//           of the flops); 2 more for each pass without gradients.
// sharding  per micro-batch each unit is gathered for the forward and again for the backward pass,
//           and its gradients are reduced (1910.02054, section 7: 3 x parameters); a ring moves
//           (n - 1) / n of the bytes through each rank.
// replicas  gradients are summed over copies once an optimizer step: 2 (n - 1) / n of the shard's
//           float32 bytes.
// tensors   four all-reduces of the residual stream in each layer and micro-batch, two more with
//           full recomputation (1909.08053, section 3).
// sequences eight all-to-alls of q, k, v and the result in each layer (2309.14509, section 3.2).
// offload   the whole state over the link to the host, or from disk and back, each optimizer step.
//
// Sharding overlaps with compute, so the longer of the two counts; the other terms are added.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_STEP_COST_H_
#define TANDEM_TOOLS_TANDEM_PLAN_STEP_COST_H_

#include "common/model/model_spec.h"
#include "tools/tandem/plan/batch_plan.h"
#include "tools/tandem/plan/hardware.h"
#include "tools/tandem/plan/rank_memory.h"

namespace tandem::plan {

// Seconds of one training step, without generation.
struct StepCost {
  double compute = 0;
  double sharding = 0;
  double replicas = 0;
  double tensors = 0;
  double sequences = 0;
  double offload = 0;

  double total() const;
};

// Returns the flops of the forward and backward pass over one token of a sequence of `length`, as
// model flops utilisation (2204.02311, appendix B) counts them, without recomputation.
double TrainingFlopsPerToken(const model::ModelSpec& spec, int64_t length);

StepCost EstimateStep(const model::ModelSpec& spec, const setup::RankSetup& setup,
                      const BatchPlan& batch, const RankMemory& memory, const Hardware& hardware);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_STEP_COST_H_
