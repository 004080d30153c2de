// Qwen1.5-MoE and Qwen2 with experts (2407.10671): one shared expert beside those that are routed.
#include <utility>

#include "common/model/families/dense_config.h"
#include "common/model/families/expert_config.h"
#include "common/model/families/registry.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseQwen2Moe(const ConfigReader& config) {
  LayerSpec layer;
  ASSIGN_OR_RETURN(layer.attention.qkv_bias, config.Flag("qkv_bias", true));
  ASSIGN_OR_RETURN(ModelSpec dense,
                   ParseDenseConfig(config, {.max_position_embeddings = 32768}, layer));
  return ParseQwenExperts(
      config,
      {.num_experts = 60, .top_k = 4, .intermediate_size = 1408, .shared_intermediate_size = 5632},
      std::move(dense));
}

}  // namespace

const Family kQwen2Moe = {"qwen2_moe", "Qwen2MoeForCausalLM", ParseQwen2Moe};

}  // namespace tandem::model
