// Mixtral (2401.04088).
#include "common/model/families/dense_config.h"
#include "common/model/families/expert_config.h"
#include "common/model/families/registry.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseMixtral(const ConfigReader& config) {
  LayerSpec layer;
  if (config.Has("sliding_window")) {
    ASSIGN_OR_RETURN(layer.attention.window, config.Size("sliding_window", kMaxPositions));
  }
  ASSIGN_OR_RETURN(const double noise, config.NonNegative("router_jitter_noise", 0.0));
  if (noise != 0.0) return config.Unsupported("router_jitter_noise", "0");
  ASSIGN_OR_RETURN(
      ModelSpec spec,
      ParseDenseConfig(config,
                       {.max_position_embeddings = 131072, .rope_theta = 1e6, .rms_norm_eps = 1e-5},
                       layer));
  ASSIGN_OR_RETURN(ExpertSpec experts,
                   ParseExperts(config, {.num_experts = 8, .top_k = 2}, spec.num_layers()));
  if (experts.num_experts == 0) return config.Invalid("num_local_experts", "1 or more");
  experts.intermediate_size = spec.layers.front().feed_forward.intermediate_size;
  experts.routing.normalize = true;
  experts.names = {.block = "block_sparse_moe.", .gate = "w1", .up = "w3", .down = "w2"};
  for (LayerSpec& of_spec : spec.layers) of_spec.experts = experts;
  return spec;
}

}  // namespace

const Family kMixtral = {"mixtral", "MixtralForCausalLM", ParseMixtral};

}  // namespace tandem::model
