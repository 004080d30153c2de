#include "common/rank_setup/rank_setup.h"

#include <algorithm>

#include "common/rank_setup/unit_limits.h"
#include "common/rank_setup/vision_checks.h"
#include "common/weights/bucket_plan.h"

namespace tandem::setup {

bool HasCritic(const config::v1::RunConfig& config) {
  return config.algorithm().adv_estimator() == config::v1::ADV_ESTIMATOR_GAE;
}

RankSetup SetupOf(const config::v1::RunConfig& config, const model::ModelSpec& spec,
                  const comm::MeshShape& mesh, const SetupContext& context) {
  const config::v1::TrainerConfig& trainer = config.trainer();
  RankSetup setup;
  setup.mesh = mesh;
  setup.element_bytes = config.model().dtype() == config::v1::ELEMENT_TYPE_FLOAT32 ? 4 : 2;
  setup.prefetch_units = trainer.prefetch_units();
  setup.unit_limits = UnitLimitsOf(trainer, spec, mesh, setup.element_bytes);
  setup.unit_limits.moves_correction_biases = config.actor().router_bias_update_rate() > 0;
  setup.unit_limits.trains_vision = TrainsVision(config, spec);
  setup.reshard_after_forward =
      trainer.reshard_after_forward() &&
      trainer.sharding_strategy() != config::v1::SHARDING_STRATEGY_SHARD_GRAD_OP;
  setup.reduces_in_float32 = trainer.reduce_dtype() != config::v1::ELEMENT_TYPE_BFLOAT16;
  setup.checkpointing = trainer.activation_checkpointing();
  setup.checkpointing_interval = std::max<int64_t>(1, trainer.activation_checkpointing_interval());
  setup.offload = trainer.offload();
  const bool eager =
      config.model().attn_implementation() == config::v1::ATTENTION_IMPLEMENTATION_EAGER;
  setup.kernels = context.on_gpu ? Kernels::kPlain
                  : eager        ? Kernels::kCpuPlainScores
                                 : Kernels::kCpu;
  setup.has_reference = config.actor().use_kl_loss() || config.algorithm().use_kl_in_reward() ||
                        context.by_preference;
  setup.has_critic = HasCritic(config);
  setup.policy_has_muon = config.actor().optim().name() == config::v1::OPTIMIZER_NAME_MUON;
  setup.critic_has_muon = config.critic().optim().name() == config::v1::OPTIMIZER_NAME_MUON;
  if (context.publishes) {
    const int64_t model_bytes = spec.num_parameters() * setup.element_bytes;
    const int64_t most_bytes = config.rollout().update_weights_bucket_megabytes() << 20;
    setup.bucket_bytes = std::min(weights::ChooseBucketBytes(most_bytes, model_bytes), model_bytes);
  }
  return setup;
}

}  // namespace tandem::setup
