// FeedForwardSpec: a feed-forward layer, gated (2002.05202) or not, as numbers, without tensors: its
// sizes, its activation and its parameters. layer_forward.h computes it.
#ifndef TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_

#include <cstdint>
#include <string>

#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

enum class Activation {
  kSilu,       // x sigmoid(x)
  kGelu,       // x Phi(x) (1606.08415)
  kGeluTanh,   // its approximation by tanh
  kQuickGelu,  // x sigmoid(1.702 x)
  kRelu,
  kRelu2,  // relu(x)^2 (2109.08668)
  kXielu,  // two learned scalars a layer (2411.13010); not gated
  // gate sigmoid(1.702 gate) (up + 1), of a gate of at most 7 and an up from -7 to 7 (2508.10925);
  // only gated
  kClampedSwiglu,
};

struct FeedForwardSpec {
  int64_t intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool gated = true;  // activation(gate) * up; false: activation(up)
  bool bias = false;

  friend bool operator==(const FeedForwardSpec&, const FeedForwardSpec&) = default;
};

// Indices into the parameter table; -1 for parameters that the layer does not have.
struct FeedForwardParameters {
  // [2 intermediate, hidden]: gate rows, then up rows; [intermediate, hidden] without a gate.
  int gate_up_weight = -1;
  int gate_up_bias = -1;
  int down_weight = -1;  // [hidden, intermediate]
  int down_bias = -1;
  int alphas = -1;  // [2], of xIELU: alpha_p, then alpha_n
};

// `prefix` names the block: "model.layers.0.mlp.". Each rank has a part of the intermediate units.
FeedForwardParameters DeclareFeedForward(const FeedForwardSpec& spec, int64_t hidden_size,
                                         const std::string& prefix, TensorParallel parallel,
                                         ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_FEED_FORWARD_SPEC_H_
