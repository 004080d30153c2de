// Derives RankSetup from a configuration: the trainer sets its ranks up with it, and the planner
// counts with it.
#ifndef TANDEM_COMMON_RANK_SETUP_RANK_SETUP_H_
#define TANDEM_COMMON_RANK_SETUP_RANK_SETUP_H_

#include <cstdint>
#include <optional>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::setup {

// The implementation of the operations of a layer.
enum class Kernels {
  kCpu,             // our fused kernels
  kCpuPlainScores,  // our kernels, but attention as matrix products and a softmax
  kPlain,           // a GPU: fused kernels, and eager_ops.cc, in float32, for what they do not take
};

// A rank's setup: what TrainerConfig says, with the mesh resolved.
struct RankSetup {
  comm::MeshShape mesh;
  int64_t element_bytes = 2;  // in compute dtype
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
  bool policy_has_muon = false;  // and not AdamW
  bool critic_has_muon = false;
  // Spec of the transformer that the critic starts from, if it is not the policy's.
  std::optional<model::ModelSpec> critic_spec;
  int64_t bucket_bytes = 0;  // per bucket of a weight update; 0: no weight updates
};

// Facts that the configuration does not contain.
struct SetupContext {
  bool on_gpu = false;         // the ranks compute on GPUs
  bool publishes = false;      // rollouts receive weights
  bool by_preference = false;  // OBJECTIVE_PREFERENCE, which always has a reference
};

// `spec` is the policy's. The configuration must have every value set (config::LoadRunConfig).
RankSetup SetupOf(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  const comm::MeshShape& mesh, const SetupContext& context);

// Whether a value model is trained alongside the policy.
bool HasCritic(const config::v1::RunConfig& config);

}  // namespace tandem::setup

#endif  // TANDEM_COMMON_RANK_SETUP_RANK_SETUP_H_
