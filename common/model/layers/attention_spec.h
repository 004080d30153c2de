// AttentionSpec: grouped-query attention (2305.13245) of one layer as numbers, without tensors: its
// sizes, the heads that a rank computes, its parameters and its cache. layer_forward.h computes it.
//
//   AttentionSpec spec{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
//   AttentionParameters at = DeclareAttention(spec, 512, "model.layers.0.", {}, declarations);
//   CacheSpec cache = CacheOf(spec, {});
#ifndef TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_

#include <cstdint>
#include <string>

#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // need not be hidden_size / num_heads
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;  // RMSNorm over head_dim on q and k, before rotation
  int64_t window = 0;    // tokens that each token sees, itself included; 0: all before it

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  friend bool operator==(const AttentionSpec&, const AttentionSpec&) = default;
};

// The heads that one rank computes: whole groups of a key-value head and the query heads that share
// it. With more ranks than key-value heads, several ranks hold the same one and split its query
// heads.
struct AttentionPart {
  Range heads;
  Range kv_heads;
};
AttentionPart PartOf(const AttentionSpec& spec, TensorParallel parallel);

// The maximum number of key-value heads on one of `size` ranks.
int64_t MostKvHeads(const AttentionSpec& spec, int size);

// Indices into the parameter table; -1 for parameters that the layer does not have.
struct AttentionParameters {
  int qkv_weight = -1;  // [q_size + 2 kv_size, hidden]
  int qkv_bias = -1;
  int q_norm = -1;  // [head_dim]
  int k_norm = -1;
  int o_weight = -1;  // [hidden, q_size]
  int o_bias = -1;
};

// `prefix` names the layer: "model.layers.0.".
AttentionParameters DeclareAttention(const AttentionSpec& spec, int64_t hidden_size,
                                     const std::string& prefix, TensorParallel parallel,
                                     ParameterDeclarations& declarations);

// What a rank caches per token, and for how long.
struct CacheSpec {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  // tokens that stay in use; 0: all of the sequence

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};
CacheSpec CacheOf(const AttentionSpec& spec, TensorParallel parallel);

// The CPU's cache stores keys in transposed tiles of this many tokens, so that a vector register
// holds one dimension of several keys and scores need no sum across lanes. Rows of values are
// padded to a multiple of it.
inline constexpr int64_t kKvTile = 16;

// Returns the elements per token in the cache of one layer.
int64_t CacheElementsPerToken(const CacheSpec& cache, bool on_gpu);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_
