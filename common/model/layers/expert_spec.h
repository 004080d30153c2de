// ExpertSpec: a feed-forward layer of experts (2101.03961) as numbers, without tensors: its sizes,
// how the router chooses, and its parameters. layer_forward.h computes it.
//
//   ExpertSpec spec{.num_experts = 8, .intermediate_size = 704, .routing = {.top_k = 2}};
//   ExpertParameters at = DeclareExperts(spec, 512, "model.layers.0.", {}, declarations);
//
// Tensor-parallel ranks split each expert like a dense layer, by intermediate units, and hold the
// whole router. All ranks then route alike and have the same number of rows whatever the router
// chooses: memory is known ahead, no rank waits for another one's favoured expert, and the number
// of experts need not be a multiple of the ranks.
#ifndef TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/layers/feed_forward_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// How a token's experts are chosen and weighted, in float32: by a softmax over all experts, of
// which the top_k count. Of two experts with equal logits the lower one is chosen.
struct RoutingSpec {
  int64_t top_k = 0;
  bool normalize = false;  // divide the weights of the chosen experts by their sum

  friend bool operator==(const RoutingSpec&, const RoutingSpec&) = default;
};

// The family's names of tensors: "model.layers.0.mlp.experts.3.gate_proj.weight".
struct ExpertNames {
  std::string block = "mlp.";
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";

  friend bool operator==(const ExpertNames&, const ExpertNames&) = default;
};

struct ExpertSpec {
  int64_t num_experts = 0;
  int64_t intermediate_size = 0;  // of each expert, a SwiGLU layer without biases
  RoutingSpec routing;
  // If not 0: a dense layer of this size that computes every token, times the sigmoid of a gate.
  int64_t shared_intermediate_size = 0;
  ExpertNames names;

  // Elements of one expert.
  int64_t ExpertElements(int64_t hidden_size) const { return 3 * hidden_size * intermediate_size; }
  friend bool operator==(const ExpertSpec&, const ExpertSpec&) = default;
};

// Indices into the parameter table. An expert's matrices are parameters of their own, so that the
// CPU packs each one and FSDP can split a layer's experts over several units.
struct ExpertParameters {
  RoutingSpec routing;
  int router = -1;           // [num_experts, hidden]
  std::vector<int> gate_up;  // of each expert: [2 intermediate, hidden], gate rows, then up rows
  std::vector<int> down;     // of each expert: [hidden, intermediate]
  std::optional<FeedForwardParameters> shared;
  int shared_gate = -1;  // [1, hidden]; -1 without a shared expert
};

// `prefix` names the layer: "model.layers.0.".
ExpertParameters DeclareExperts(const ExpertSpec& spec, int64_t hidden_size,
                                const std::string& prefix, TensorParallel parallel,
                                ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_
