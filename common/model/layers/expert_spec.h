// ExpertSpec: a feed-forward layer of experts (2101.03961) as numbers, without tensors: its sizes,
// how the router chooses, and its parameters. layer_forward.h computes it.
//
//   ExpertSpec spec{.num_experts = 8, .intermediate_size = 704, .routing = {.top_k = 2}};
//   ExpertParameters at = DeclareExperts(spec, 512, "model.layers.0.", {}, {}, declarations);
//
// Names are those of Qwen2-MoE, "model.layers.0.mlp.experts.3.gate_proj.weight", in all families.
//
// Tensor-parallel ranks split each expert like a dense layer, by intermediate units, and hold the
// whole router. All ranks then route alike and have the same number of rows whatever the router
// chooses: memory is known ahead, no rank waits for another one's favoured expert, and the number
// of experts need not be a multiple of the ranks. Expert-parallel ranks hold whole experts; each
// declares those of the others too, empty, so that all have the same list of tensors. The ranks of a
// rollout can be both (ExpertParallel::of_tensor_ranks): they all have the same tokens, and each computes
// the rows of its own experts.
#ifndef TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/norm_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// How a token's experts are chosen and weighted, in float32. Logits become scores; those experts
// count whose scores, plus the correction bias, are the top_k largest, of equal ones the lower; their
// weights are their scores without that bias.
struct RoutingSpec {
  enum class Score {
    kSoftmax,  // over all experts
    kSigmoid,  // of each logit (2408.15664)
    // SparseMixer's (2409.12136), as inference computes it: each choice's softmax is over the experts
    // not chosen before it whose logits are near its own.
    kSparsemixer,
    // Sigmoid of each chosen logit; logits are compared, of which different ones may have the same
    // sigmoid (Llama 4).
    kSigmoidOfChosen,
  };
  enum class GroupScore { kLargest, kSumOfTwo };

  int64_t top_k = 0;
  bool normalize = false;  // divide the weights of the chosen experts by their sum
  Score score = Score::kSoftmax;
  bool bias = false;             // of the logits
  bool correction_bias = false;  // of the choice alone; not trained
  // Groups of consecutive experts: only those of the top_groups best ones can be chosen.
  int64_t num_groups = 1;
  int64_t top_groups = 1;
  GroupScore group_score = GroupScore::kLargest;
  double scale = 1.0;  // of the weights
  // A norm of the router's own makes what it reads (RouterParameters::norm).
  std::optional<NormSpec> norm;
  double logit_scale = 1.0;    // of the logits
  bool expert_scales = false;  // a learned factor of each expert's weight
  bool weigh_inputs = false;   // weights multiply what experts read, not what they yield (Llama 4)
  double jitter =
      0.0;  // kSparsemixer: near is (largest - logit) / max(|logit|, largest) <= 2 jitter

  bool HasGroups() const { return top_groups < num_groups; }
  friend bool operator==(const RoutingSpec&, const RoutingSpec&) = default;
};

struct ExpertSpec {
  int64_t num_experts = 0;
  int64_t intermediate_size = 0;  // of each expert, a gated layer
  RoutingSpec routing;
  Activation activation = Activation::kSilu;  // of every expert, the shared one too
  bool bias = false;                          // of the routed experts
  // If not 0: a dense layer of this size that computes every token.
  int64_t shared_intermediate_size = 0;
  bool shared_gate = true;  // times the sigmoid of a gate
  bool shared_bias = false;
  // The layer has a dense feed-forward besides. Both begin and end with norms of their own, and router and
  // experts read the residual stream (Gemma 4).
  bool beside_dense = false;

  // Elements of one expert.
  int64_t ExpertElements(int64_t hidden_size) const {
    return 3 * hidden_size * intermediate_size + (bias ? 2 * intermediate_size + hidden_size : 0);
  }
  FeedForwardSpec Expert() const {
    return {.intermediate_size = intermediate_size, .activation = activation, .bias = bias};
  }
  FeedForwardSpec Shared() const {
    return {.intermediate_size = shared_intermediate_size,
            .activation = activation,
            .bias = shared_bias};
  }
  friend bool operator==(const ExpertSpec&, const ExpertSpec&) = default;
};

// One matrix of every expert, and its bias.
struct ExpertMatrices {
  std::vector<int> weights;
  std::vector<int> biases;  // empty: none
};

struct RouterParameters {
  int weight = -1;           // [num_experts, hidden]
  int bias = -1;             // [num_experts]
  int correction_bias = -1;  // [num_experts]
  NormParameters norm;       // [hidden]
  int expert_scales = -1;    // [num_experts]
};

// Indices into the parameter table; -1 for parameters that the layer does not have. An expert's
// matrices are parameters of their own, so that the CPU packs each one and FSDP can split a layer's
// experts over several units.
struct ExpertParameters {
  RouterParameters router;
  // Of the experts that this rank holds.
  ExpertMatrices gate_up;  // [2 intermediate, hidden], gate rows, then up rows
  ExpertMatrices down;     // [hidden, intermediate]
  std::optional<FeedForwardParameters> shared;
  int shared_gate = -1;  // [1, hidden]
};

// `prefix` names the layer: "model.layers.0.".
ExpertParameters DeclareExperts(const ExpertSpec& spec, int64_t hidden_size,
                                const std::string& prefix, TensorParallel parallel,
                                ExpertParallel split, ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_EXPERT_SPEC_H_
