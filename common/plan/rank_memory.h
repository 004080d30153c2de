// The memory of one trainer rank, predicted from the model's shape alone.
//
// A training step is followed tensor by tensor, as services/trainer/fsdp does it: units are
// gathered, blocks run, graphs are kept and freed, gradients are laid into buffers and reduced. The
// largest sum is what the trainer reports as perf/peak_tensor_bytes.
//
//   const RankMemory memory = PredictRankMemory(spec, setup, workload);
//   memory.peak.total(), memory.peak.of(MemoryKind::kActivations), memory.peak.place
#ifndef TANDEM_COMMON_PLAN_RANK_MEMORY_H_
#define TANDEM_COMMON_PLAN_RANK_MEMORY_H_

#include <cstdint>
#include <optional>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/plan/block_memory.h"
#include "common/plan/memory_ledger.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::plan {

// How a rank is set up: what TrainerConfig says, with the mesh resolved.
struct RankSetup {
  comm::MeshShape mesh;
  int64_t element_bytes = 2;  // of compute
  int64_t prefetch_units = 1;
  model::UnitLimits unit_limits;
  bool reshard_after_forward = true;
  bool reduces_in_float32 = true;
  config::v1::ActivationCheckpointing checkpointing = config::v1::ACTIVATION_CHECKPOINTING_NONE;
  int64_t checkpointing_interval = 1;
  config::v1::Offload offload = config::v1::OFFLOAD_NONE;
  Kernels kernels = Kernels::kCpu;
  bool has_reference = false;
  bool has_critic = false;
  // Of the transformer that the critic begins as, where that is not the policy's.
  std::optional<model::ModelSpec> critic_spec;
  int64_t bucket_bytes = 0;  // of a weight update; 0: none happens
};

// The fullest micro-batch of a rank, and how many there are.
struct RankWorkload {
  int64_t tokens = 0;     // of one micro-batch, of all ranks that share its sequences
  int64_t rows = 0;       // of these, those that a loss is computed of
  int64_t sequences = 1;  // of one micro-batch
  int64_t longest_sequence = 0;
  int64_t micro_batches = 1;  // of one optimizer step
  int64_t step_tokens = 0;    // that the rank holds packed during a training step
  int64_t step_rows = 0;
  bool computes_old_logprobs = false;
};

struct RankMemory {
  MemorySnapshot peak;       // on the device
  int64_t host_bytes = 0;    // that offload cpu keeps in the host's memory
  int64_t disk_bytes = 0;    // that offload disk keeps in files
  int64_t resident = 0;      // tensors that stay from step to step: shards and moments
  int64_t largest_unit = 0;  // bytes of the largest unit, gathered, in compute dtype
};

RankMemory PredictRankMemory(const model::ModelSpec& spec, const RankSetup& setup,
                             const RankWorkload& workload);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_RANK_MEMORY_H_
