#include "common/model/layers/latent_spec.h"

#include <utility>
#include <vector>

#include "common/model/layers/attention_spec.h"

namespace tandem::model {

LatentParameters DeclareLatent(const AttentionSpec& spec, int64_t hidden_size, Range heads,
                               const std::string& prefix, ParameterDeclarations& declarations) {
  const LatentSpec& latent = *spec.latent;
  const auto whole = [&](const char* name, std::vector<int64_t> shape, ParameterRole role) {
    return declarations.Add(Single(Whole(prefix + name, std::move(shape)), role, kReplicate));
  };
  // A matrix with `dim` rows for each head.
  const auto by_head = [&](const char* name, int64_t dim, int64_t columns) {
    return Single(
        Rows(prefix + name, {spec.num_heads * dim, columns}, {heads.begin * dim, heads.end * dim}),
        ParameterRole::kMatrix, kShardRows);
  };

  LatentParameters at;
  if (latent.q_rank == 0) {
    at.q_weight = declarations.Add(by_head("q_proj.weight", spec.head_dim, hidden_size));
  } else {
    at.q_a_weight = whole("q_a_proj.weight", {latent.q_rank, hidden_size}, ParameterRole::kMatrix);
    if (latent.bias) at.q_a_bias = whole("q_a_proj.bias", {latent.q_rank}, ParameterRole::kBias);
    at.q_norm = DeclareNorm(latent.norm, latent.q_rank, prefix + "q_a_layernorm.", declarations);
    at.q_b_weight = declarations.Add(by_head("q_b_proj.weight", spec.head_dim, latent.q_rank));
  }
  const int64_t down = latent.kv_rank + latent.rope_dim;
  at.kv_a_weight = whole("kv_a_proj_with_mqa.weight", {down, hidden_size}, ParameterRole::kMatrix);
  if (latent.bias) {
    at.kv_a_bias = whole("kv_a_proj_with_mqa.bias", {down}, ParameterRole::kBias);
  }
  at.kv_norm = DeclareNorm(latent.norm, latent.kv_rank, prefix + "kv_a_layernorm.", declarations);
  Parameter up = by_head("kv_b_proj.weight", spec.nope_dim() + spec.value_dim(), latent.kv_rank);
  up.read_by_row = true;  // absorbed_heads.h
  at.kv_b_weight = declarations.Add(std::move(up));
  return at;
}

}  // namespace tandem::model
