// Mixture-of-experts models, for planning their weight updates. ModelSpec does not support experts
// yet, so such a model is a list of tensors, each with the rule by which tensor-parallel ranks
// share it.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_MOE_SHAPE_H_
#define TANDEM_TOOLS_TANDEM_PLAN_MOE_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/weights/model_layout.h"

namespace tandem::plan {

// Multi-head latent attention (2405.04434) and a feed-forward layer of experts; the first layers
// have a dense one instead.
struct MoeSpec {
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_dense_layers = 0;
  int64_t intermediate_size = 0;  // of a dense layer
  int64_t expert_size = 0;        // intermediate units of an expert
  int64_t num_experts = 0;
  int64_t num_shared_experts = 0;
  int64_t num_heads = 0;
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t rope_dim = 0;  // rotated dims of a head; all heads share their keys
  int64_t nope_dim = 0;  // unrotated dims of a head
  int64_t value_dim = 0;
  int64_t vocab_size = 0;
};

// Lists the names of the built-in shapes; returns the shape of one of these names.
std::vector<std::string> MoeShapeNames();
MoeSpec MoeShape(const std::string& name);

// Makes one unit per layer, and one each for embedding and head. Heads, intermediate units and
// vocabulary are split like those of a dense model; a rank owns whole experts; parameters shared by
// all heads, the router and the norms are on every rank.
std::vector<weights::TensorRule> MoeTensors(const MoeSpec& spec);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_MOE_SHAPE_H_
