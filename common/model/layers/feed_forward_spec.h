// FeedForwardSpec: a gated feed-forward layer (SwiGLU, 2002.05202) as numbers, without tensors: its
// sizes and its parameters. layer_forward.h computes it.
#ifndef TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_

#include <cstdint>
#include <string>

#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct FeedForwardSpec {
  int64_t intermediate_size = 0;
  bool bias = false;

  friend bool operator==(const FeedForwardSpec&, const FeedForwardSpec&) = default;
};

// Indices into the parameter table; -1 for parameters that the layer does not have.
struct FeedForwardParameters {
  int gate_up_weight = -1;  // [2 intermediate, hidden]: gate rows, then up rows
  int gate_up_bias = -1;
  int down_weight = -1;  // [hidden, intermediate]
  int down_bias = -1;
};

// `prefix` names the block: "model.layers.0.mlp.". Each rank has a part of the intermediate units.
FeedForwardParameters DeclareFeedForward(const FeedForwardSpec& spec, int64_t hidden_size,
                                         const std::string& prefix, TensorParallel parallel,
                                         ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_
