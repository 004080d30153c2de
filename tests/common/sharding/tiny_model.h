// A model of two layers, for tests of what a pass over it does.
#ifndef TANDEM_TESTS_COMMON_SHARDING_TINY_MODEL_H_
#define TANDEM_TESTS_COMMON_SHARDING_TINY_MODEL_H_

#include "common/model/model_spec.h"

namespace tandem::sharding {

inline model::ModelSpec TwoLayers(bool tied) {
  model::ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 32;
  spec.hidden_size = 8;
  spec.tie_word_embeddings = tied;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 16;
  layer.attention.num_heads = 2;
  layer.attention.num_kv_heads = 1;
  layer.attention.head_dim = 4;
  spec.layers.assign(2, layer);
  return spec;
}

}  // namespace tandem::sharding

#endif  // TANDEM_TESTS_COMMON_SHARDING_TINY_MODEL_H_
