// A model whose last layers read the keys and values of others, and whose layers have inputs of their own,
// for tests of what holds for any model.
#ifndef TANDEM_TESTS_SUPPORT_SHARED_LAYERS_H_
#define TANDEM_TESTS_SUPPORT_SHARED_LAYERS_H_

#include <cstdint>

#include "common/model/model_spec.h"

namespace tandem::testing {

// Gives the spec six layers like its first, three with keys and values and three that read those of the
// last one of their kind: with the window `window`, or without.
inline void ShareKeys(model::ModelSpec& spec, int64_t window) {
  spec.layers.assign(6, model::LayerSpec(spec.layers.front()));
  for (const int layer : {0, 1, 3, 5}) spec.layers[layer].attention.window = window;
  for (const int layer : {3, 5}) spec.layers[layer].attention.kv_layer = 1;
  spec.layers[4].attention.kv_layer = 2;
}

// Gives every layer norms on both sides of its sub-layers and an input of `size` elements, as Gemma 4 has
// them.
inline void AddLayerInputs(model::ModelSpec& spec, int64_t size) {
  spec.layer_inputs = {.vocab_size = spec.vocab_size + 3, .size = size};
  spec.embedding_multiplier = 1.5;
  for (model::LayerSpec& layer : spec.layers) {
    layer.norm_placement = model::NormPlacement::kSandwich;
    layer.input_gate = {.size = size};
  }
}

// Both, and in the layers without a window other heads, half of whose elements rotate.
inline void ShareLayers(model::ModelSpec& spec) {
  ShareKeys(spec, /*window=*/20);
  AddLayerInputs(spec, /*size=*/12);
  model::RopeSpec rope = spec.ropes.front();
  rope.theta = 100.0;
  rope.rotary_dim = spec.layers.front().attention.head_dim;
  spec.ropes.push_back(rope);
  for (const int layer : {2, 4}) {
    model::AttentionSpec& attention = spec.layers[layer].attention;
    attention.head_dim *= 2;
    attention.rope = 1;
  }
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_SHARED_LAYERS_H_
