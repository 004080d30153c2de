// Qwen3, dense (2505.09388).
#include "common/model/families/dense_config.h"
#include "common/model/families/registry.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseQwen3(const ConfigReader& config) {
  LayerSpec layer;
  layer.attention.qk_norm = true;
  ASSIGN_OR_RETURN(layer.attention.qkv_bias, config.Flag("attention_bias", false));
  layer.attention.output_bias = layer.attention.qkv_bias;
  return ParseDenseConfig(
      config, {.head_dim = 128, .max_position_embeddings = 32768, .sliding_window = 4096}, layer);
}

}  // namespace

const Family kQwen3 = {"qwen3", "Qwen3ForCausalLM", ParseQwen3};

}  // namespace tandem::model
