// The layers' operations in plain ATen, differentiable through its autograd, on any device and in
// any floating dtype. This is the CUDA path where we have no kernel, and the reference for tests of
// the CPU kernels. Computes in float32 (float64 for float64 inputs) and rounds once at the end.
#ifndef TANDEM_COMMON_MODEL_EAGER_OPS_H_
#define TANDEM_COMMON_MODEL_EAGER_OPS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "common/model/activation.h"
#include "common/model/attention.h"
#include "common/model/latent_heads.h"
#include "common/model/norm.h"
#include "common/model/rotary.h"
#include "common/model/router.h"

namespace tandem::model::eager {

// Returns x in float32; float64 stays.
at::Tensor Wide(const at::Tensor& x);

// Over the last dim; see norm.h.
at::Tensor Normalize(const at::Tensor& x, const Norm& norm);

// Splits and rotates fused projections [num_tokens, q + 2 kv]; see rotary.h.
Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation);

// See latent_heads.h.
Qkv JoinLatentHeads(const LatentProjections& projections, const LatentShape& shape,
                    const RotaryAngles& angles);

// See activation.h.
at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function);

// Routing; see router.h.
at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router);
at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, const Router& router);

// Returns the weighted sums of rows [.., size] at places [num_tokens, top_k]; see expert_rows.h.
at::Tensor CombineRows(const at::Tensor& results, const at::Tensor& weights,
                       const at::Tensor& places);

// Queries that see beyond themselves. ends: int64 [num_queries] on the CPU, behind the last position that
// each sees.
struct SeenAhead {
  int64_t first_query = 0;  // its position
  at::Tensor ends;
};

// Returns the softmax of the causal scores of one sequence, float32 (float64 for float64 inputs)
// [num_heads, num_queries, num_keys]. Sinks take their share of a row's probability and have no
// column. The queries are those of the last tokens that have keys, unless `ahead` says which.
// first_key: the position of the first key in its sequence, on which a window in chunks depends.
//   q [num_queries, num_heads, head_dim], k [num_keys, num_kv_heads, head_dim]
at::Tensor AttentionProbabilities(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionParams& params, int64_t first_key = 0,
                                  const std::optional<SeenAhead>& ahead = std::nullopt);

// Computes causal attention of one sequence: [num_queries, num_heads * v_head_dim] in q's dtype.
//   v [num_keys, num_kv_heads, v_head_dim]
at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params, int64_t first_key = 0,
                     const std::optional<SeenAhead>& ahead = std::nullopt);

// Computes causal attention over packed sequences: cu_seqlens, int64 [num_sequences + 1] on the
// CPU, holds the first token of each and the end; seen_ends: as in model::PackedAttention. Processes
// one sequence after another, with the full score matrix.
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& cu_seqlens, const AttentionParams& params,
                           const at::Tensor& seen_ends = {});

}  // namespace tandem::model::eager

#endif  // TANDEM_COMMON_MODEL_EAGER_OPS_H_
