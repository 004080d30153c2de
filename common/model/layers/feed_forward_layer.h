// FeedForwardLayer: the forward pass of a FeedForwardSpec.
#ifndef TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_LAYER_H_
#define TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_LAYER_H_

#include <ATen/core/Tensor.h>

#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/layer_context.h"

namespace tandem::model {

struct FeedForwardLayer {
  FeedForwardParameters at;

  // normed, result: [num_tokens, hidden].
  at::Tensor Forward(const LayerContext& context, const at::Tensor& normed) const;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_LAYER_H_
