// Qwen2 and Qwen2.5 (2407.10671, 2412.15115).
#include "common/model/families/dense_config.h"
#include "common/model/families/registry.h"

namespace tandem::model {
namespace {

absl::StatusOr<ModelSpec> ParseQwen2(const ConfigReader& config) {
  LayerSpec layer;
  layer.attention.qkv_bias = true;  // the family has no key for it
  return ParseDenseConfig(config, {.max_position_embeddings = 32768, .sliding_window = 4096},
                          layer);
}

}  // namespace

const Family kQwen2 = {"qwen2", "Qwen2ForCausalLM", ParseQwen2};

}  // namespace tandem::model
