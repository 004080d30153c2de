#include "common/model/eager_ops.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include <limits>
#include <tuple>
#include <vector>

#include "common/device/upload.h"
#include "common/model/kernels/activation_rows.h"

namespace tandem::model::eager {
namespace {

// Rotates the leading elements of heads; x: [num_tokens, heads, head_dim], wide.
at::Tensor Rotate(const at::Tensor& x, const RotaryAngles& angles) {
  if (!angles.cos.defined()) return x;
  const int64_t half = angles.cos.size(-1);
  const at::Tensor cos = angles.cos.unsqueeze(1);
  const at::Tensor sin = angles.sin.unsqueeze(1);
  const at::Tensor rotating = x.narrow(-1, 0, 2 * half);
  const at::Tensor first = angles.interleaved ? rotating.unflatten(-1, {half, 2}).select(-1, 0)
                                              : rotating.narrow(-1, 0, half);
  const at::Tensor second = angles.interleaved ? rotating.unflatten(-1, {half, 2}).select(-1, 1)
                                               : rotating.narrow(-1, half, half);
  const at::Tensor a = first * cos - second * sin;
  const at::Tensor b = second * cos + first * sin;
  at::Tensor rotated = angles.interleaved ? at::stack({a, b}, -1).flatten(-2) : at::cat({a, b}, -1);
  if (2 * half == x.size(-1)) return rotated;
  return at::cat({rotated, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

// x: wide.
at::Tensor NormWide(const at::Tensor& x, const NormSpec& spec, const at::Tensor& weight,
                    const at::Tensor& bias) {
  at::Tensor out = x;
  if (spec.kind == NormKind::kLayer) out = out - out.mean(-1, /*keepdim=*/true);
  out = out * at::rsqrt(out.square().mean(-1, /*keepdim=*/true) + spec.eps);
  if (weight.defined()) out = out * (spec.unit_offset ? Wide(weight) + 1.0 : Wide(weight));
  if (bias.defined()) out = out + Wide(bias);
  return out;
}

// Norms heads [num_tokens, heads, head_dim], wide.
at::Tensor NormHeads(const at::Tensor& x, const QkNormSpec& spec, const NormTensors& norm) {
  const bool over_all = spec.over == QkNormSpec::Over::kAllHeads;
  const at::Tensor out = NormWide(over_all ? x.flatten(1) : x, spec.norm, norm.weight, norm.bias);
  return over_all ? out.view(x.sizes()) : out;
}

// Norms and rotates the heads of q or k.
at::Tensor NormAndRotate(const at::Tensor& part, int64_t heads, const HeadRotation& rotation,
                         const NormTensors& norm, const at::Tensor& scale) {
  const bool after = rotation.norm.has_value() && rotation.norm->after_rotation;
  at::Tensor x = Wide(part).view({part.size(0), heads, rotation.shape.head_dim});
  if (rotation.norm.has_value() && !after) x = NormHeads(x, *rotation.norm, norm);
  x = Rotate(x, rotation.angles);
  if (after) x = NormHeads(x, *rotation.norm, norm);
  if (scale.defined()) x = x * scale.view({-1, 1, 1});
  return x.to(part.scalar_type());
}

// x: wide.
at::Tensor Activated(const at::Tensor& x, const ActivationFunction& function) {
  switch (function.activation) {
    case Activation::kSilu:
      return x * at::sigmoid(x);
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kQuickGelu:
      return x * at::sigmoid(x * kernels::kQuickGeluSlope);
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kRelu2:
      return at::relu(x).square();
    case Activation::kXielu: {
      const at::Tensor slopes = at::softplus(Wide(function.alphas));
      const at::Tensor above = slopes[0] * x * x;
      const at::Tensor below =
          (at::expm1(x.clamp_max(kernels::kXieluEps)) - x) * (slopes[1] + kernels::kXieluBeta);
      return at::where(x > 0, above, below) + kernels::kXieluBeta * x;
    }
    case Activation::kClampedSwiglu:
      break;  // has no value without `up`
  }
  TORCH_INTERNAL_ASSERT(false, "unknown activation");
}

// The slopes of heads, on the CPU.
at::Tensor Slopes(const Alibi& alibi, int64_t num_heads) {
  at::Tensor slopes = at::empty({num_heads}, at::kFloat);
  for (int64_t i = 0; i < num_heads; ++i) {
    slopes.mutable_data_ptr<float>()[i] = SlopeOf(alibi, i);
  }
  return slopes;
}

// Mask: true if the query (row) must not see the key (column). The queries are those of the last keys,
// the first of which has the position `first_key`, unless `ahead` says else.
at::Tensor Hidden(int64_t queries, int64_t keys, int64_t first_key,
                  const std::optional<SeenAhead>& ahead, const Window& window,
                  const at::Device& device) {
  const at::Tensor position =
      at::arange(first_key, first_key + keys, at::TensorOptions(at::kLong).device(device));
  const int64_t before = ahead.has_value() ? ahead->first_query - first_key : keys - queries;
  const at::Tensor own = position.narrow(0, before, queries).unsqueeze(1);
  const at::Tensor distance = own - position.unsqueeze(0);
  const at::Tensor hidden =
      ahead.has_value()
          ? position.unsqueeze(0).ge(::tandem::device::Upload(ahead->ends, device).unsqueeze(1))
          : distance.lt(0);
  if (!window.IsLimited()) return hidden;
  if (!window.chunked) return hidden.logical_or(distance.ge(window.size));
  const at::Tensor first_of_chunk = own - own.remainder(window.size);
  return hidden.logical_or(position.unsqueeze(0).lt(first_of_chunk));
}

// Returns the indices of the `count` largest of each row, by descending rank.
at::Tensor Largest(const at::Tensor& ranks, int64_t count) {
  // Stable: equal ones stay in order.
  const at::Tensor order = std::get<1>(at::sort(ranks, /*stable=*/true, 1, /*descending=*/true));
  return order.narrow(1, 0, count);
}

// Mask: true for experts outside the groups that can be chosen. ranks: without NaN.
at::Tensor OutsideGroups(const at::Tensor& ranks, const RoutingSpec& spec) {
  const at::Tensor by_group = ranks.view({ranks.size(0), spec.num_groups, -1});
  const bool of_two =
      spec.group_score == RoutingSpec::GroupScore::kSumOfTwo && by_group.size(2) > 1;
  const at::Tensor best = std::get<0>(at::topk(by_group, of_two ? 2 : 1, 2)).sum(2);
  at::Tensor outside = at::ones_like(best, at::kBool);
  outside.scatter_(1, Largest(best, spec.top_groups), false);
  return outside.unsqueeze(2).expand_as(by_group).reshape(ranks.sizes());
}

// SparseMixer's weights of the chosen experts, one choice after another.
at::Tensor SparsemixerWeights(const at::Tensor& logits, const at::Tensor& experts, double jitter) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor values = logits.detach();
  const at::Tensor order = Largest(values.gather(1, experts), experts.size(1));
  at::Tensor left = logits;  // experts chosen before have a logit of -infinity
  std::vector<at::Tensor> by_choice;
  for (int64_t i = 0; i < experts.size(1); ++i) {
    const at::Tensor expert = experts.gather(1, order.narrow(1, i, 1));
    const at::Tensor largest = values.gather(1, expert);
    const at::Tensor far = ((largest - values) / at::maximum(values.abs(), largest)).gt(2 * jitter);
    by_choice.push_back(at::softmax(left.masked_fill(far, -kInfinity), 1).gather(1, expert));
    left = left.scatter(1, expert, -kInfinity);
  }
  return at::cat(by_choice, 1).gather(1, at::argsort(order, int64_t{1}));
}

}  // namespace

at::Tensor Wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor Normalize(const at::Tensor& x, const Norm& norm) {
  return NormWide(Wide(x), norm.spec, norm.weight, norm.bias).to(x.scalar_type());
}

Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation) {
  const QkvShape& shape = rotation.shape;
  const int64_t q_size = shape.num_heads * shape.head_dim;
  const int64_t k_size = shape.num_kv_heads * shape.head_dim;
  const std::vector<at::Tensor> parts = qkv.split_with_sizes({q_size, k_size, shape.v_size()}, -1);
  const at::Tensor values = parts[2].view({qkv.size(0), shape.num_kv_heads, shape.value_dim()});
  return {
      NormAndRotate(parts[0], shape.num_heads, rotation, rotation.q_norm, rotation.query_scale),
      NormAndRotate(parts[1], shape.num_kv_heads, rotation, rotation.k_norm, {}),
      rotation.value_norm.has_value() ? Normalize(values, {*rotation.value_norm, {}, {}}) : values};
}

Qkv JoinLatentHeads(const LatentProjections& projections, const LatentShape& shape,
                    const RotaryAngles& angles) {
  const auto rotated = [&](const at::Tensor& heads) {
    return Rotate(Wide(heads), angles).to(heads.scalar_type());
  };
  const at::Tensor q = projections.q.view({-1, shape.num_heads, shape.head_dim()});
  const std::vector<at::Tensor> of_query = q.split_with_sizes({shape.nope_dim, shape.rope_dim}, -1);
  const at::Tensor kv = projections.kv.view({-1, shape.num_heads, shape.nope_dim + shape.v_dim});
  const std::vector<at::Tensor> of_kv = kv.split_with_sizes({shape.nope_dim, shape.v_dim}, -1);
  const at::Tensor shared =
      rotated(projections.shared.unsqueeze(1)).expand({-1, shape.num_heads, -1});
  return {at::cat({of_query[0], rotated(of_query[1])}, -1), at::cat({of_kv[0], shared}, -1),
          of_kv[1].contiguous()};
}

at::Tensor Activate(const at::Tensor& in, const ActivationFunction& function) {
  if (!function.gated) return Activated(Wide(in), function).to(in.scalar_type());
  const std::vector<at::Tensor> halves = in.chunk(2, -1);
  if (function.activation == Activation::kClampedSwiglu) {
    const at::Tensor gate = Wide(halves[0]).clamp_max(kernels::kSwigluLimit);
    const at::Tensor up = Wide(halves[1]).clamp(-kernels::kSwigluLimit, kernels::kSwigluLimit);
    return (gate * at::sigmoid(gate * kernels::kSwigluSlope) * (up + 1)).to(in.scalar_type());
  }
  return (Activated(Wide(halves[0]), function) * Wide(halves[1])).to(in.scalar_type());
}

at::Tensor ChooseExperts(const at::Tensor& logits, const Router& router) {
  const RoutingSpec& spec = router.spec;
  at::Tensor ranks = logits;
  if (spec.score == RoutingSpec::Score::kSigmoid) {
    ranks = at::sigmoid(logits);
  } else if (spec.score == RoutingSpec::Score::kSoftmax && router.correction_bias.defined()) {
    ranks = at::softmax(logits, 1);
  }
  if (router.correction_bias.defined()) ranks = ranks + router.correction_bias;
  ranks = ranks.masked_fill(at::isnan(ranks), -std::numeric_limits<double>::infinity());
  if (spec.HasGroups()) {
    ranks = ranks.masked_fill(OutsideGroups(ranks, spec), -std::numeric_limits<double>::infinity());
  }
  const at::Tensor chosen = Largest(ranks, spec.top_k);
  return std::get<0>(at::sort(chosen, 1, /*descending=*/false));
}

at::Tensor ExpertWeights(const at::Tensor& logits, const at::Tensor& experts,
                         const Router& router) {
  const RoutingSpec& spec = router.spec;
  at::Tensor weights;
  switch (spec.score) {
    case RoutingSpec::Score::kSoftmax:
      // A correction may choose experts whose shares are all 0.
      weights = spec.normalize && router.correction_bias.defined()
                    ? at::softmax(logits.gather(1, experts), 1)
                    : at::softmax(logits, 1).gather(1, experts);
      break;
    case RoutingSpec::Score::kSigmoid:
    case RoutingSpec::Score::kSigmoidOfChosen:
      weights = at::sigmoid(logits.gather(1, experts));
      break;
    case RoutingSpec::Score::kSparsemixer:
      weights = SparsemixerWeights(logits, experts, spec.jitter);
      break;
  }
  if (spec.normalize) {
    const bool of_sigmoids = spec.score == RoutingSpec::Score::kSigmoid ||
                             spec.score == RoutingSpec::Score::kSigmoidOfChosen;
    const double least = of_sigmoids ? 1e-20 : 0.0;
    const at::Tensor sum = weights.sum(1, /*keepdim=*/true);
    weights = weights / (least > 0 ? sum + least : sum);
  }
  if (spec.scale != 1.0) weights = weights * spec.scale;
  at::Tensor damaged = at::isnan(logits).any(1, /*keepdim=*/true);
  if (router.correction_bias.defined()) {
    damaged = damaged.logical_or(at::isnan(router.correction_bias).any());
  }
  return weights.masked_fill(damaged, std::numeric_limits<double>::quiet_NaN());
}

at::Tensor CombineRows(const at::Tensor& results, const at::Tensor& weights,
                       const at::Tensor& places) {
  const at::Tensor rows = Wide(results)
                              .index_select(0, places.flatten())
                              .view({places.size(0), places.size(1), results.size(1)});
  return (rows * weights.unsqueeze(-1)).sum(1).to(results.scalar_type());
}

at::Tensor AttentionProbabilities(const at::Tensor& q, const at::Tensor& k,
                                  const AttentionParams& params, int64_t first_key,
                                  const std::optional<SeenAhead>& ahead) {
  const int64_t num_queries = q.size(0);
  const int64_t num_keys = k.size(0);
  const int64_t num_heads = q.size(1);
  const int64_t num_kv_heads = k.size(1);
  const int64_t group = num_heads / num_kv_heads;
  // [num_kv_heads, group, num_queries, head_dim] and [num_kv_heads, 1, num_keys, head_dim]
  const at::Tensor queries =
      Wide(q).permute({1, 0, 2}).reshape({num_kv_heads, group, num_queries, q.size(2)});
  const at::Tensor keys = Wide(k).permute({1, 0, 2}).unsqueeze(1);
  at::Tensor scores = queries.matmul(keys.transpose(-1, -2)) * params.scale;
  if (params.softcap > 0) scores = at::tanh(scores / params.softcap) * params.softcap;
  if (params.alibi.scale != 0) {
    const auto options = scores.options().requires_grad(false);
    const at::Tensor position = at::arange(num_keys, options);
    const int64_t before =
        ahead.has_value() ? ahead->first_query - first_key : num_keys - num_queries;
    const at::Tensor own = position.narrow(0, before, num_queries);
    const at::Tensor slopes = Slopes(params.alibi, num_heads).to(options);
    scores = scores +
             slopes.view({num_kv_heads, group, 1, 1}) * (position.unsqueeze(0) - own.unsqueeze(1));
  }
  scores =
      scores.masked_fill(Hidden(num_queries, num_keys, first_key, ahead, params.window, q.device()),
                         -std::numeric_limits<double>::infinity());
  if (params.sinks.has_value()) {
    const at::Tensor sink =
        Wide(*params.sinks).view({num_kv_heads, group, 1, 1}).expand({-1, -1, num_queries, 1});
    scores = at::cat({scores, sink}, -1);
  }
  return at::softmax(scores, -1)
      .narrow(-1, 0, num_keys)
      .reshape({num_heads, num_queries, num_keys});
}

at::Tensor Attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionParams& params, int64_t first_key,
                     const std::optional<SeenAhead>& ahead) {
  const int64_t num_kv_heads = k.size(1);
  const at::Tensor probabilities =
      AttentionProbabilities(q, k, params, first_key, ahead)
          .view({num_kv_heads, q.size(1) / num_kv_heads, q.size(0), k.size(0)});
  const at::Tensor values = Wide(v).permute({1, 0, 2}).unsqueeze(1);
  const at::Tensor output =
      probabilities.matmul(values);  // [kv heads, group, num_queries, v_head_dim]
  return output.permute({2, 0, 1, 3})
      .reshape({q.size(0), q.size(1) * v.size(2)})
      .to(q.scalar_type());
}

at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& cu_seqlens, const AttentionParams& params,
                           const at::Tensor& seen_ends) {
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  std::vector<at::Tensor> outputs;
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    const int64_t start = starts[i];
    const int64_t length = starts[i + 1] - start;
    if (length == 0) continue;
    std::optional<SeenAhead> ahead;
    if (seen_ends.defined()) ahead = {0, seen_ends.narrow(0, start, length)};
    outputs.push_back(Attention(q.narrow(0, start, length), k.narrow(0, start, length),
                                v.narrow(0, start, length), params, /*first_key=*/0, ahead));
  }
  if (outputs.empty()) return v.reshape({0, q.size(1) * v.size(2)});
  return at::cat(outputs, 0);
}

}  // namespace tandem::model::eager
