// LatentSpec: multi-head latent attention (2405.04434) as numbers, without tensors. A down-projection
// makes of each token a latent and a key part that all heads share; an up-projection makes every
// head's key and value of the latent:
//
//   latent, shared = split(kv_a x)                        [kv_rank], [rope_dim]
//   key_nope, value of each head = kv_b norm(latent)      [head_dim - rope_dim], [v_head_dim]
//   key of each head = (key_nope, rotated shared)         [head_dim]
//
// Queries have a latent of their own, or are projected at once. layer_forward.h computes it.
#ifndef TANDEM_COMMON_MODEL_LAYERS_LATENT_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_LATENT_SPEC_H_

#include <cstdint>
#include <string>

#include "common/model/layers/norm_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct AttentionSpec;

struct LatentSpec {
  int64_t q_rank = 0;  // elements of the queries' latent; 0: queries are projected at once
  int64_t kv_rank = 0;
  int64_t rope_dim = 0;  // the last elements of heads of q and k: they rotate, the others do not
  bool bias = false;     // of the down-projections
  NormSpec norm;         // of each latent

  friend bool operator==(const LatentSpec&, const LatentSpec&) = default;
};

// Indices into the parameter table; -1 for parameters that the layer does not have.
struct LatentParameters {
  int q_weight = -1;    // [q_size, hidden], of queries without a latent
  int q_a_weight = -1;  // [q_rank, hidden]
  int q_a_bias = -1;
  NormParameters q_norm;
  int q_b_weight = -1;   // [q_size, q_rank]
  int kv_a_weight = -1;  // [kv_rank + rope_dim, hidden]
  int kv_a_bias = -1;
  NormParameters kv_norm;
  int kv_b_weight = -1;  // [num_heads * (head_dim - rope_dim + v_head_dim), kv_rank], head by head
};

// Declares what comes before the scores of a spec with a latent. `heads`: of the rank, which holds
// their part of the up-projections; down-projections and norms are whole on every rank. `prefix`
// names the block: "model.layers.0.self_attn.".
LatentParameters DeclareLatent(const AttentionSpec& spec, int64_t hidden_size, Range heads,
                               const std::string& prefix, ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_LATENT_SPEC_H_
