#include "common/model/layers/attention_spec.h"

namespace tandem::model {
namespace {

// The first rank that holds the key-value head, if there are more ranks than heads.
int FirstRankOf(int64_t kv_head, int64_t num_kv_heads, int size) {
  return static_cast<int>((kv_head * size + num_kv_heads - 1) / num_kv_heads);
}

Range Scaled(Range heads, int64_t head_dim) {
  return {heads.begin * head_dim, heads.end * head_dim};
}

}  // namespace

AttentionPart PartOf(const AttentionSpec& spec, TensorParallel parallel) {
  const int64_t heads_of_each = spec.num_heads / spec.num_kv_heads;
  if (parallel.size <= spec.num_kv_heads) {
    const Range kv_heads = PartOf(spec.num_kv_heads, parallel);
    return {Scaled(kv_heads, heads_of_each), kv_heads};
  }
  const int64_t head = parallel.rank * spec.num_kv_heads / parallel.size;
  const int first = FirstRankOf(head, spec.num_kv_heads, parallel.size);
  const int end = FirstRankOf(head + 1, spec.num_kv_heads, parallel.size);
  const Range share = PartOf(heads_of_each, {parallel.rank - first, end - first});
  return {{head * heads_of_each + share.begin, head * heads_of_each + share.end}, {head, head + 1}};
}

int64_t MostKvHeads(const AttentionSpec& spec, int size) {
  return (spec.num_kv_heads + size - 1) / size;
}

AttentionParameters DeclareAttention(const AttentionSpec& spec, int64_t hidden_size,
                                     const std::string& prefix, TensorParallel parallel,
                                     ParameterDeclarations& declarations) {
  const std::string name = prefix + "self_attn.";
  const int64_t q = spec.q_size();
  const int64_t kv = spec.kv_size();
  const AttentionPart part = PartOf(spec, parallel);
  const Range q_rows = Scaled(part.heads, spec.head_dim);
  const Range kv_rows = Scaled(part.kv_heads, spec.head_dim);
  const auto norm = [&](const char* which) {
    return declarations.Add(
        Single(Whole(name + which, {spec.head_dim}), ParameterRole::kNorm, kReplicate));
  };

  AttentionParameters at;
  at.qkv_weight = declarations.Add(Stack(name + "qkv_proj.weight",
                                         {Rows(name + "q_proj.weight", {q, hidden_size}, q_rows),
                                          Rows(name + "k_proj.weight", {kv, hidden_size}, kv_rows),
                                          Rows(name + "v_proj.weight", {kv, hidden_size}, kv_rows)},
                                         ParameterRole::kMatrix, kShardRows));
  if (spec.qkv_bias) {
    at.qkv_bias = declarations.Add(
        Stack(name + "qkv_proj.bias",
              {Rows(name + "q_proj.bias", {q}, q_rows), Rows(name + "k_proj.bias", {kv}, kv_rows),
               Rows(name + "v_proj.bias", {kv}, kv_rows)},
              ParameterRole::kBias, kShardRows));
  }
  if (spec.qk_norm) {
    at.q_norm = norm("q_norm.weight");
    at.k_norm = norm("k_norm.weight");
  }
  at.o_weight = declarations.Add(Single(Part(name + "o_proj.weight", {hidden_size, q}, 1, q_rows),
                                        ParameterRole::kMatrix, kShardColumns));
  if (spec.output_bias) {
    at.o_bias = declarations.Add(
        Single(Whole(name + "o_proj.bias", {hidden_size}), ParameterRole::kBias, kReplicate));
  }
  return at;
}

CacheSpec CacheOf(const AttentionSpec& spec, TensorParallel parallel) {
  return {PartOf(spec, parallel).kv_heads.size(), spec.head_dim, spec.window};
}

int64_t CacheElementsPerToken(const CacheSpec& cache, bool on_gpu) {
  const int64_t value =
      on_gpu ? cache.head_dim : (cache.head_dim + kKvTile - 1) / kKvTile * kKvTile;
  return cache.num_kv_heads * (cache.head_dim + value);
}

}  // namespace tandem::model
