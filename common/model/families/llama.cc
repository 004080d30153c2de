// Llama 2 and 3 (2307.09288, 2407.21783), and other models with the same layers.
#include "common/model/families/dense_config.h"
#include "common/model/families/registry.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseLlama(const ConfigReader& config) {
  LayerSpec layer;
  ASSIGN_OR_RETURN(layer.attention.qkv_bias, config.Flag("attention_bias", false));
  layer.attention.output_bias = layer.attention.qkv_bias;
  ASSIGN_OR_RETURN(layer.feed_forward.bias, config.Flag("mlp_bias", false));
  return ParseDenseConfig(config, {.max_position_embeddings = 2048}, layer);
}

}  // namespace

const Family kLlama = {"llama", "LlamaForCausalLM", ParseLlama};

}  // namespace tandem::model
