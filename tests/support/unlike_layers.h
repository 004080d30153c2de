// A model whose layers cache keys and values of different sizes, for tests of what holds for any model.
#ifndef TANDEM_TESTS_SUPPORT_UNLIKE_LAYERS_H_
#define TANDEM_TESTS_SUPPORT_UNLIKE_LAYERS_H_

#include "common/model/model_spec.h"

namespace tandem::testing {

// Gives the spec four layers like its first, of which the two in the middle have a window, sinks, other
// heads and another rotation.
inline void MakeLayersUnlike(model::ModelSpec& spec) {
  spec.layers.assign(4, model::LayerSpec(spec.layers.front()));
  spec.ropes.push_back({.theta = 300.0, .rotary_dim = 8});
  for (const int i : {1, 2}) {
    model::AttentionSpec& attention = spec.layers[i].attention;
    attention.num_kv_heads = 3;
    attention.head_dim = 16;
    attention.v_head_dim = 20;
    attention.rope = 1;
    attention.sinks = true;
    attention.value_scale = 0.7;
    attention.window = 20;
  }
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_UNLIKE_LAYERS_H_
