// Qwen3 with experts (2505.09388).
#include <utility>

#include "common/model/families/dense_config.h"
#include "common/model/families/expert_config.h"
#include "common/model/families/registry.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseQwen3Moe(const ConfigReader& config) {
  LayerSpec layer;
  layer.attention.qk_norm = true;
  ASSIGN_OR_RETURN(layer.attention.qkv_bias, config.Flag("attention_bias", false));
  layer.attention.output_bias = layer.attention.qkv_bias;
  ASSIGN_OR_RETURN(ModelSpec dense,
                   ParseDenseConfig(config, {.max_position_embeddings = 32768}, layer));
  return ParseQwenExperts(config, {.num_experts = 128, .top_k = 8, .intermediate_size = 768},
                          std::move(dense));
}

}  // namespace

const Family kQwen3Moe = {"qwen3_moe", "Qwen3MoeForCausalLM", ParseQwen3Moe};

}  // namespace tandem::model
