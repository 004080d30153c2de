// A model whose layers differ in everything but attention, for tests of what holds for any model.
#ifndef TANDEM_TESTS_SUPPORT_VARIED_LAYERS_H_
#define TANDEM_TESTS_SUPPORT_VARIED_LAYERS_H_

#include "common/model/model_spec.h"

namespace tandem::testing {

// Gives the spec four layers like its first, each with norms, a feed-forward layer and an order of
// its own; learned positions and a norm on the embedding; a head with a bias, a scale and a softcap.
inline void VaryLayers(model::ModelSpec& spec) {
  using model::Activation;
  using model::NormKind;
  using model::NormPlacement;
  const model::NormSpec layer_norm{.kind = NormKind::kLayer, .eps = 1e-5, .bias = true};
  const model::LayerSpec layer = spec.layers.front();
  spec.layers.assign(4, layer);
  // As GPT-J, Gemma 2, OLMo 2 with Apertus' activation, and GPT-NeoX.
  model::LayerSpec& shared = spec.layers[0];
  shared.norm = layer_norm;
  shared.parallel = shared.shared_norm = true;
  shared.feed_forward.activation = Activation::kGeluTanh;
  shared.feed_forward.gated = false;
  shared.feed_forward.bias = true;
  model::LayerSpec& sandwich = spec.layers[1];
  sandwich.norm.unit_offset = true;
  sandwich.norm_placement = NormPlacement::kSandwich;
  sandwich.residual_multiplier = 0.7;
  sandwich.feed_forward.activation = Activation::kGelu;
  model::LayerSpec& after = spec.layers[2];
  after.norm_placement = NormPlacement::kAfter;
  after.feed_forward.activation = Activation::kXielu;
  after.feed_forward.gated = false;
  model::LayerSpec& parallel = spec.layers[3];
  parallel.norm = {.kind = NormKind::kLayer, .eps = 1e-5, .weight = false};
  parallel.parallel = true;
  parallel.feed_forward.activation = Activation::kRelu2;
  parallel.feed_forward.gated = false;

  spec.embedding_multiplier = 1.5;
  spec.position_embedding = {.num_positions = spec.max_position_embeddings, .offset = 2};
  spec.embedding_norm = layer_norm;
  spec.final_norm = layer_norm;
  spec.head_bias = true;
  spec.logit_scale = 0.8;
  spec.logit_softcap = 5.0;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_VARIED_LAYERS_H_
