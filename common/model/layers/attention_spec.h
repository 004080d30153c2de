// AttentionSpec: attention of one layer as numbers, without tensors, grouped-query (2305.13245) or
// latent (latent_spec.h), or linear (delta_spec.h): its sizes, the heads that a rank computes, its parameters and its cache. layer_forward.h computes it.
//
//   AttentionSpec spec{.num_heads = 8, .num_kv_heads = 2, .head_dim = 64};
//   AttentionParameters at = DeclareAttention(spec, 512, "model.layers.0.", {}, declarations);
//   CacheSpec cache = CacheOf(spec, {});
#ifndef TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "common/model/kernels/window.h"
#include "common/model/layers/delta_spec.h"
#include "common/model/layers/latent_spec.h"
#include "common/model/layers/norm_spec.h"
#include "common/model/parameter.h"
#include "common/model/tensor_parallel.h"

namespace tandem::model {

// Norms of q and k.
struct QkNormSpec {
  enum class Over {
    kHead,      // each head, with one weight [head_dim] for all
    kEachHead,  // each head, with a weight of its own: [heads, head_dim]
    kAllHeads,  // all heads at once: [heads * head_dim]
  };
  Over over = Over::kHead;
  bool after_rotation = false;
  NormSpec norm;

  // Llama's norm over each head, before the rotation, which the fused kernel computes.
  bool IsPlain() const { return *this == QkNormSpec{.norm = {.eps = norm.eps}}; }
  friend bool operator==(const QkNormSpec&, const QkNormSpec&) = default;
};

// Queries times 1 + beta log(1 + floor((position + first) / original)) (Llama 4, Ministral 3).
struct QueryPositionScale {
  double beta = 0.0;
  int64_t original_max_position_embeddings = 1;
  int64_t first = 0;  // the number of the first token

  friend bool operator==(const QueryPositionScale&, const QueryPositionScale&) = default;
};

struct AttentionSpec {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // of queries and keys; need not be hidden_size / num_heads
  int64_t v_head_dim = 0;    // of values; 0: head_dim
  bool qkv_bias = false;
  bool output_bias = false;
  std::optional<QkNormSpec> qk_norm;
  std::optional<NormSpec> value_norm;  // of each head of values, without weights
  // Values are what the projection of keys yields, before norms and rotation; v_head_dim is 0.
  bool values_are_keys = false;
  double clip_qkv = 0.0;  // limits elements of q, k and v to [-clip_qkv, clip_qkv]; 0: no limit
  int rope = 0;           // index into ModelSpec::ropes; -1: no rotation
  std::optional<QueryPositionScale> query_position_scale;
  double scale = 0.0;        // of scores; 0: head_dim^-0.5
  double softcap = 0.0;      // c: scores become c tanh(score / c); 0: none
  bool sinks = false;        // a learned score for each head that takes its share of the softmax
  double value_scale = 1.0;  // of values
  // ALiBi (2108.12409): adds slope(head) * alibi_scale * (key - query position); 0: none.
  double alibi_scale = 0.0;
  Window window;  // tokens that each token sees
  // Keys and values are made of a latent; num_kv_heads is num_heads, and there are no norms of q and
  // k, limits, scales by position, ALiBi or biases of q, k and v.
  std::optional<LatentSpec> latent;
  // What attention yields is multiplied by the sigmoid of a projection of its own.
  bool output_gate = false;
  // The earlier layer whose keys and values this one attends to, as that layer normed and rotated them; it
  // has queries alone, and its numbers of keys and values, its rotation and its window are those of that
  // layer (carried_tensors.h). -1: it makes its own.
  int64_t kv_layer = -1;
  // Linear attention in place of all of this; the other numbers are those of the model's other
  // layers, and have no meaning here.
  std::optional<DeltaSpec> delta;

  double ScoreScale() const;  // `scale`, or its default
  bool reads_other_kv() const { return kv_layer >= 0; }
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t v_size() const { return num_kv_heads * value_dim(); }
  int64_t attended_size() const { return num_heads * value_dim(); }
  // Leading elements of a head that do not rotate, of a spec with a latent.
  int64_t nope_dim() const { return head_dim - latent->rope_dim; }
  // Of the matrix that makes keys and values of the latent, likewise.
  int64_t UpProjectionElements() const {
    return num_heads * (nope_dim() + value_dim()) * latent->kv_rank;
  }
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
  // [q_size + kv_size + v_size, hidden]; without v_size of AttentionSpec::values_are_keys, and q_size alone of
  // kv_layer.
  int qkv_weight = -1;
  int qkv_bias = -1;
  NormParameters q_norm;
  NormParameters k_norm;
  LatentParameters latent;  // in place of all these
  int sinks = -1;           // [num_heads]
  int gate_weight = -1;     // [attended_size, hidden], of AttentionSpec::output_gate
  int gate_bias = -1;
  int o_weight = -1;  // [hidden, attended_size]
  int o_bias = -1;
  DeltaParameters delta;  // in place of all these
};

// `prefix` names the layer: "model.layers.0.".
AttentionParameters DeclareAttention(const AttentionSpec& spec, int64_t hidden_size,
                                     const std::string& prefix, TensorParallel parallel,
                                     ParameterDeclarations& declarations);

// What the cache of a layer with a latent holds.
enum class LatentCache {
  kExpanded,  // the keys and values of every head, as the trainer computes them
  // The latent and the rotated key part, one for all heads, the same on every rank. Queries and
  // results go through the up-projection instead: fewer bytes, other roundings.
  kLatents,
};

// CacheSpec::window of a layer that caches nothing per token.
inline constexpr int64_t kNoCache = -1;

// What a rank caches per token, and for how long.
struct CacheSpec {
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // of keys
  int64_t v_head_dim = 0;
  Window window;        // tokens that stay in use, or kNoCache
  bool shared = false;  // one head, whose value is the first v_head_dim elements of its key

  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};
CacheSpec CacheOf(const AttentionSpec& spec, TensorParallel parallel,
                  LatentCache latents = LatentCache::kExpanded);

// The CPU's cache stores keys in transposed tiles of this many tokens, so that a vector register
// holds one dimension of several keys and scores need no sum across lanes. Rows of values are
// padded to a multiple of it.
inline constexpr int64_t kKvTile = 16;

// Returns the elements per token in the cache of one layer.
int64_t CacheElementsPerToken(const CacheSpec& cache, bool on_gpu);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_ATTENTION_SPEC_H_
