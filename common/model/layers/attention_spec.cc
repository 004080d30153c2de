#include "common/model/layers/attention_spec.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace tandem::model {
namespace {

// The first rank that holds the key-value head, if there are more ranks than heads.
int FirstRankOf(int64_t kv_head, int64_t num_kv_heads, int size) {
  return static_cast<int>((kv_head * size + num_kv_heads - 1) / num_kv_heads);
}

Range Scaled(Range heads, int64_t head_dim) {
  return {heads.begin * head_dim, heads.end * head_dim};
}

// A tensor of the norm of q or k. `heads` of all `num_heads` are the rank's.
Parameter QkNormTensor(const QkNormSpec& spec, std::string name, ParameterRole role,
                       int64_t num_heads, Range heads, int64_t head_dim) {
  Segment segment;
  switch (spec.over) {
    case QkNormSpec::Over::kHead:
      segment = Whole(std::move(name), {head_dim});
      break;
    case QkNormSpec::Over::kEachHead:
      segment = Rows(std::move(name), {num_heads, head_dim}, heads);
      break;
    case QkNormSpec::Over::kAllHeads:
      segment = Rows(std::move(name), {num_heads * head_dim}, Scaled(heads, head_dim));
      break;
  }
  if (role == ParameterRole::kNorm && spec.norm.unit_offset) segment.initial_value = 0.0f;
  const bool is_whole = spec.over == QkNormSpec::Over::kHead;
  return Single(std::move(segment), role, is_whole ? kReplicate : kShardRows);
}

}  // namespace

double AttentionSpec::ScoreScale() const {
  return scale > 0 ? scale : 1.0 / std::sqrt(static_cast<double>(head_dim));
}

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
  const int64_t k = spec.kv_size();
  const int64_t v = spec.v_size();
  const AttentionPart part = PartOf(spec, parallel);
  const Range q_rows = Scaled(part.heads, spec.head_dim);
  const Range k_rows = Scaled(part.kv_heads, spec.head_dim);
  const Range v_rows = Scaled(part.kv_heads, spec.value_dim());
  const auto norm = [&](const std::string& which, int64_t num_heads, Range heads) {
    const QkNormSpec& norm = *spec.qk_norm;
    NormParameters at;
    if (norm.norm.weight) {
      at.weight = declarations.Add(QkNormTensor(
          norm, name + which + ".weight", ParameterRole::kNorm, num_heads, heads, spec.head_dim));
    }
    if (norm.norm.bias) {
      at.bias = declarations.Add(QkNormTensor(norm, name + which + ".bias", ParameterRole::kBias,
                                              num_heads, heads, spec.head_dim));
    }
    return at;
  };

  const auto declare_output = [&](AttentionParameters& at) {
    at.o_weight =
        declarations.Add(Single(Part(name + "o_proj.weight", {hidden_size, spec.attended_size()}, 1,
                                     Scaled(part.heads, spec.value_dim())),
                                ParameterRole::kMatrix, kShardColumns));
    if (!spec.output_bias) return;
    at.o_bias = declarations.Add(
        Single(Whole(name + "o_proj.bias", {hidden_size}), ParameterRole::kBias, kReplicate));
  };

  AttentionParameters at;
  if (spec.delta.has_value()) {
    at.delta = DeclareDelta(*spec.delta, hidden_size, prefix, parallel, declarations);
    return at;
  }
  if (spec.latent.has_value()) {
    at.latent = DeclareLatent(spec, hidden_size, part.heads, name, declarations);
    declare_output(at);
    return at;
  }
  // Queries, keys and values are one parameter; without keys and values of its own a layer has queries alone.
  const auto declare_qkv = [&](const char* suffix, bool is_matrix) {
    const auto rows = [&](const char* which, int64_t size, Range part) {
      return Rows(name + which + suffix,
                  is_matrix ? std::vector<int64_t>{size, hidden_size} : std::vector{size}, part);
    };
    const ParameterRole role = is_matrix ? ParameterRole::kMatrix : ParameterRole::kBias;
    if (spec.reads_other_kv()) {
      return declarations.Add(Single(rows("q_proj", q, q_rows), role, kShardRows));
    }
    std::vector<Segment> parts = {rows("q_proj", q, q_rows), rows("k_proj", k, k_rows)};
    if (!spec.values_are_keys) parts.push_back(rows("v_proj", v, v_rows));
    return declarations.Add(Stack(name + "qkv_proj" + suffix, std::move(parts), role, kShardRows));
  };
  at.qkv_weight = declare_qkv(".weight", /*is_matrix=*/true);
  if (spec.qkv_bias) at.qkv_bias = declare_qkv(".bias", /*is_matrix=*/false);
  if (spec.qk_norm.has_value()) {
    at.q_norm = norm("q_norm", spec.num_heads, part.heads);
    if (!spec.reads_other_kv()) at.k_norm = norm("k_norm", spec.num_kv_heads, part.kv_heads);
  }
  if (spec.sinks) {
    // Added to a sum like a bias, and like one it starts from zero.
    at.sinks = declarations.Add(Single(Rows(name + "sinks", {spec.num_heads}, part.heads),
                                       ParameterRole::kBias, kShardRows));
  }
  if (spec.output_gate) {
    const int64_t size = spec.attended_size();
    const Range rows = Scaled(part.heads, spec.value_dim());
    at.gate_weight =
        declarations.Add(Single(Rows(name + "gate_proj.weight", {size, hidden_size}, rows),
                                ParameterRole::kMatrix, kShardRows));
    if (spec.qkv_bias) {
      at.gate_bias = declarations.Add(
          Single(Rows(name + "gate_proj.bias", {size}, rows), ParameterRole::kBias, kShardRows));
    }
  }
  declare_output(at);
  return at;
}

CacheSpec CacheOf(const AttentionSpec& spec, TensorParallel parallel, LatentCache latents) {
  if (spec.delta.has_value() || spec.reads_other_kv()) return {.window = kNoCache};
  if (spec.latent.has_value() && latents == LatentCache::kLatents) {
    const LatentSpec& latent = *spec.latent;
    return {1, latent.kv_rank + latent.rope_dim, latent.kv_rank, spec.window, /*shared=*/true};
  }
  return {PartOf(spec, parallel).kv_heads.size(), spec.head_dim, spec.value_dim(), spec.window};
}

int64_t CacheElementsPerToken(const CacheSpec& cache, bool on_gpu) {
  if (cache.shared) return cache.num_kv_heads * cache.head_dim;
  const int64_t value =
      on_gpu ? cache.v_head_dim : (cache.v_head_dim + kKvTile - 1) / kKvTile * kKvTile;
  return cache.num_kv_heads * (cache.head_dim + value);
}

}  // namespace tandem::model
