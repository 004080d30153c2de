// AttentionLayer: the forward pass of an AttentionSpec. The caller's Attention (attention.h)
// provides the past tokens: whole sequences in the trainer, a paged cache in the rollout.
#ifndef TANDEM_COMMON_MODEL_LAYERS_ATTENTION_LAYER_H_
#define TANDEM_COMMON_MODEL_LAYERS_ATTENTION_LAYER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/attention.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/layers/layer_context.h"
#include "common/model/rotary.h"

namespace tandem::model {

class AttentionLayer {
 public:
  // `layer`: index in the model, by which `attention` finds the layer's cache. `eps`: for the norms
  // of q and k.
  AttentionLayer(const AttentionSpec& spec, const AttentionParameters& parameters, int64_t layer,
                 double eps, TensorParallel parallel);

  // normed, result: [num_tokens, hidden].
  at::Tensor Forward(const LayerContext& context, const at::Tensor& normed, const Rotary& rotary,
                     Attention& attention) const;

 private:
  HeadRotation RotationOf(const LayerContext& context, const Rotary& rotary) const;

  AttentionParameters at_;
  QkvShape shape_;  // of this rank's heads
  int64_t layer_;
  int64_t window_;  // of AttentionSpec
  double eps_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_ATTENTION_LAYER_H_
