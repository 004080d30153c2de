#include "common/model/eager_ops.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tanh.h>

#include <limits>
#include <tuple>
#include <vector>

namespace tandem::model::eager {
namespace {

at::Tensor Wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

// x: [num_tokens, heads, head_dim], wide.
at::Tensor Rotate(const at::Tensor& x, const Rotary& rotary) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor first = x.narrow(-1, 0, half);
  const at::Tensor second = x.narrow(-1, half, half);
  const at::Tensor cos = rotary.cos.unsqueeze(1);
  const at::Tensor sin = rotary.sin.unsqueeze(1);
  return at::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

at::Tensor NormWide(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x * at::rsqrt(x.square().mean(-1, /*keepdim=*/true) + eps) * Wide(weight);
}

// Mask: true if the query (row) must not see the key (column).
at::Tensor Hidden(int64_t length, int64_t window, const at::Device& device) {
  const at::Tensor position = at::arange(length, at::TensorOptions(at::kLong).device(device));
  const at::Tensor distance = position.unsqueeze(1) - position.unsqueeze(0);
  at::Tensor hidden = distance.lt(0);
  if (window > 0) hidden = hidden.logical_or(distance.ge(window));
  return hidden;
}

}  // namespace

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return NormWide(Wide(x), weight, eps).to(x.scalar_type());
}

Qkv RotateQkv(const at::Tensor& qkv, const Rotary& rotary, const QkvShape& shape,
              const std::optional<at::Tensor>& q_norm, const std::optional<at::Tensor>& k_norm,
              double eps) {
  const int64_t q_size = shape.num_heads * shape.head_dim;
  const int64_t kv_size = shape.num_kv_heads * shape.head_dim;
  const std::vector<at::Tensor> parts = qkv.split_with_sizes({q_size, kv_size, kv_size}, -1);
  at::Tensor q = Wide(parts[0]).view({-1, shape.num_heads, shape.head_dim});
  at::Tensor k = Wide(parts[1]).view({-1, shape.num_kv_heads, shape.head_dim});
  if (q_norm.has_value()) q = NormWide(q, *q_norm, eps);
  if (k_norm.has_value()) k = NormWide(k, *k_norm, eps);
  return {Rotate(q, rotary).to(qkv.scalar_type()), Rotate(k, rotary).to(qkv.scalar_type()),
          parts[2].view({-1, shape.num_kv_heads, shape.head_dim})};
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const std::vector<at::Tensor> halves = gate_up.chunk(2, -1);
  const at::Tensor gate = Wide(halves[0]);
  return (gate * at::sigmoid(gate) * Wide(halves[1])).to(gate_up.scalar_type());
}

at::Tensor ChooseExperts(const at::Tensor& logits, int64_t top_k) {
  const at::Tensor ranks =
      logits.masked_fill(at::isnan(logits), -std::numeric_limits<double>::infinity());
  // Stable: equal logits stay in the order of experts.
  const at::Tensor order = std::get<1>(at::sort(ranks, /*stable=*/true, 1, /*descending=*/true));
  return std::get<0>(at::sort(order.narrow(1, 0, top_k), 1, /*descending=*/false));
}

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts, bool normalize) {
  const at::Tensor chosen = at::softmax(logits, 1).gather(1, experts);
  return normalize ? chosen / chosen.sum(1, /*keepdim=*/true) : chosen;
}

at::Tensor CombineRows(const at::Tensor& results, const at::Tensor& weights,
                       const at::Tensor& places) {
  const at::Tensor rows = Wide(results)
                              .index_select(0, places.flatten())
                              .view({places.size(0), places.size(1), results.size(1)});
  return (rows * weights.unsqueeze(-1)).sum(1).to(results.scalar_type());
}

at::Tensor AttentionProbabilities(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionParams& params) {
  const int64_t length = q.size(0);
  const int64_t num_heads = q.size(1);
  const int64_t num_kv_heads = k.size(1);
  const int64_t group = num_heads / num_kv_heads;
  // [num_kv_heads, group, length, head_dim] and [num_kv_heads, 1, length, head_dim]
  const at::Tensor queries =
      Wide(q).permute({1, 0, 2}).reshape({num_kv_heads, group, length, q.size(2)});
  const at::Tensor keys = Wide(k).permute({1, 0, 2}).unsqueeze(1);
  at::Tensor scores = queries.matmul(keys.transpose(-1, -2)) * params.scale;
  if (params.softcap > 0) scores = at::tanh(scores / params.softcap) * params.softcap;
  scores = scores.masked_fill(Hidden(length, params.window, q.device()),
                              -std::numeric_limits<double>::infinity());
  if (params.sinks.has_value()) {
    const at::Tensor sink =
        Wide(*params.sinks).view({num_kv_heads, group, 1, 1}).expand({-1, -1, length, 1});
    scores = at::cat({scores, sink}, -1);
  }
  return at::softmax(scores, -1).narrow(-1, 0, length).reshape({num_heads, length, length});
}

at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& cu_seqlens, const AttentionParams& params) {
  const int64_t num_heads = q.size(1);
  const int64_t num_kv_heads = k.size(1);
  const int64_t head_dim = q.size(2);
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  std::vector<at::Tensor> outputs;
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    const int64_t start = starts[i];
    const int64_t length = starts[i + 1] - start;
    if (length == 0) continue;
    const at::Tensor probabilities =
        AttentionProbabilities(q.narrow(0, start, length), k.narrow(0, start, length), params)
            .view({num_kv_heads, num_heads / num_kv_heads, length, length});
    const at::Tensor values = Wide(v.narrow(0, start, length)).permute({1, 0, 2}).unsqueeze(1);
    const at::Tensor output = probabilities.matmul(values);  // [kv heads, group, length, head_dim]
    outputs.push_back(
        output.permute({2, 0, 1, 3}).reshape({length, num_heads * head_dim}).to(q.scalar_type()));
  }
  if (outputs.empty()) return q.reshape({0, num_heads * head_dim});
  return at::cat(outputs, 0);
}

}  // namespace tandem::model::eager
