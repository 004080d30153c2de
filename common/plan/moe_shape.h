// Models of experts, for planning their weight updates. ModelSpec has no experts yet, so such a
// model is its list of tensors, each with the rule by which tensor-parallel ranks share it.
#ifndef TANDEM_COMMON_PLAN_MOE_SHAPE_H_
#define TANDEM_COMMON_PLAN_MOE_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/weights/model_layout.h"

namespace tandem::plan {

// Multi-head latent attention (2405.04434) and a feed-forward layer of experts, of which the first
// layers have a dense one.
struct MoeSpec {
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_dense_layers = 0;
  int64_t intermediate_size = 0;  // of a dense layer
  int64_t expert_size = 0;        // inner units of an expert
  int64_t num_experts = 0;
  int64_t num_shared_experts = 0;
  int64_t num_heads = 0;
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t rope_dim = 0;  // of a head, rotated; its keys are shared by all heads
  int64_t nope_dim = 0;  // of a head, not rotated
  int64_t value_dim = 0;
  int64_t vocab_size = 0;
};

// The names of the shapes that there are, and the shape of a name that is one of them.
std::vector<std::string> MoeShapeNames();
MoeSpec MoeShape(const std::string& name);

// A unit for each layer, and one each for embedding and head. Heads, inner units and vocabulary
// are split as those of a dense model; a rank owns whole experts; what is shared by all heads, the
// router and the norms are on every rank.
std::vector<weights::TensorRule> MoeTensors(const MoeSpec& spec);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_MOE_SHAPE_H_
