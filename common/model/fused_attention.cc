#include "common/model/fused_attention.h"

#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "common/device/upload.h"
#include "common/model/cpu_dispatch.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// FlashAttention's limits.
constexpr int64_t kMostHeadDim = 256;
constexpr int64_t kHeadDimStep = 8;
// The efficient kernel reads 16 bytes at a time.
constexpr int64_t kFloatHeadDimStep = 4;
// Its masks: a query sees the keys up to its own, or all.
constexpr int64_t kCausalFromTopLeft = 1;
constexpr int64_t kNoMask = 0;

bool IsHalf(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

std::optional<int64_t> KeysBefore(int64_t window) {
  return window > 0 ? std::optional<int64_t>(window - 1) : std::nullopt;
}

at::Tensor LastDimContiguous(const at::Tensor& x) { return x.stride(-1) == 1 ? x : x.contiguous(); }

// Each key-value head once for every query head of its group: [1, num_tokens, num_heads, head_dim].
at::Tensor Repeated(const at::Tensor& x, int64_t num_heads) {
  const int64_t group = num_heads / x.size(1);
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), group, x.size(2)})
      .reshape({1, x.size(0), num_heads, x.size(2)});
}

// The gradient of what Repeated() repeats.
at::Tensor SumOfGroups(const at::Tensor& grad, int64_t num_kv_heads) {
  return grad.view({grad.size(1), num_kv_heads, grad.size(2) / num_kv_heads, grad.size(3)}).sum(2);
}

// What LibTorch's forward pass returns.
auto FlashForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& starts, int64_t longest, bool causal, double scale,
                  int64_t window) {
  const std::optional<int64_t> before = KeysBefore(window);
  return at::_flash_attention_forward(
      q, k, v, starts, starts, longest, longest, /*dropout_p=*/0.0, causal,
      /*return_debug_mask=*/false, scale, before,
      before.has_value() ? std::optional<int64_t>(0) : std::nullopt);
}

auto EfficientForward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const at::Tensor& starts, int64_t longest, bool causal, double scale) {
  const int64_t num_heads = q.size(1);
  return at::_efficient_attention_forward(
      q.unsqueeze(0), Repeated(k, num_heads), Repeated(v, num_heads), /*bias=*/std::nullopt, starts,
      starts, longest, longest, /*dropout_p=*/0.0, causal ? kCausalFromTopLeft : kNoMask,
      /*compute_log_sumexp=*/true, scale);
}

struct FlashFunction : torch::autograd::Function<FlashFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& starts, int64_t longest,
                            bool causal, double scale, int64_t window) {
    auto [out, log_sum_exp, rng_state, unused, mask] =
        FlashForward(q, k, v, starts, longest, causal, scale, window);
    ctx->save_for_backward({q, k, v, out, log_sum_exp, starts, rng_state, unused});
    ctx->saved_data["longest"] = longest;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["window"] = window;
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const int64_t longest = ctx->saved_data["longest"].toInt();
    const std::optional<int64_t> before = KeysBefore(ctx->saved_data["window"].toInt());
    auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward(
        grads[0].contiguous(), saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[5],
        longest, longest, /*dropout_p=*/0.0, ctx->saved_data["causal"].toBool(), saved[6], saved[7],
        ctx->saved_data["scale"].toDouble(), before,
        before.has_value() ? std::optional<int64_t>(0) : std::nullopt);
    return {grad_q,       grad_k,       grad_v,       at::Tensor(),
            at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct EfficientFunction : torch::autograd::Function<EfficientFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const at::Tensor& starts, int64_t longest,
                            bool causal, double scale) {
    auto [out, log_sum_exp, seed, offset, max_q, max_k] =
        EfficientForward(q, k, v, starts, longest, causal, scale);
    ctx->save_for_backward({q, k, v, out, log_sum_exp, starts, seed, offset});
    ctx->saved_data["longest"] = longest;
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["scale"] = scale;
    return out.squeeze(0);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const int64_t num_kv_heads = saved[1].size(1);
    const int64_t longest = ctx->saved_data["longest"].toInt();
    auto [grad_q, grad_k, grad_v, grad_bias] = at::_efficient_attention_backward(
        grads[0].contiguous().unsqueeze(0), q.unsqueeze(0), Repeated(saved[1], q.size(1)),
        Repeated(saved[2], q.size(1)), /*bias=*/std::nullopt, saved[3], saved[5], saved[5], longest,
        longest, saved[4], /*dropout_p=*/0.0, saved[6], saved[7],
        ctx->saved_data["causal"].toBool() ? kCausalFromTopLeft : kNoMask,
        /*bias_requires_grad=*/false, ctx->saved_data["scale"].toDouble());
    return {grad_q.squeeze(0),
            SumOfGroups(grad_k, num_kv_heads),
            SumOfGroups(grad_v, num_kv_heads),
            at::Tensor(),
            at::Tensor(),
            at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

FusedSequences FusedSequencesOf(const at::Tensor& cu_seqlens, at::Device device) {
  FusedSequences sequences;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    sequences.longest = std::max(sequences.longest, starts[i + 1] - starts[i]);
  }
  sequences.starts = ::tandem::device::Upload(cu_seqlens.to(at::kInt), device);
  return sequences;
}

bool FusedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionParams& params) {
  const int64_t head_dim = q.size(2);
  if (!q.is_cuda() || k.device() != q.device() || v.device() != q.device()) return false;
  if (k.scalar_type() != q.scalar_type() || v.scalar_type() != q.scalar_type()) return false;
  if (q.size(0) == 0 || q.size(0) > std::numeric_limits<int32_t>::max()) return false;
  if (v.size(2) != head_dim || head_dim > kMostHeadDim) return false;
  if (params.softcap > 0 || params.alibi.scale != 0 || params.sinks.has_value()) return false;
  if (params.window.chunked) return false;
  if (IsHalf(q)) return head_dim % kHeadDimStep == 0;
  return q.scalar_type() == at::kFloat && params.window == 0 && head_dim % kFloatHeadDimStep == 0;
}

at::Tensor FusedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const FusedSequences& sequences, const AttentionParams& params) {
  const at::Tensor queries = LastDimContiguous(q);
  const at::Tensor keys = LastDimContiguous(k);
  const at::Tensor values = LastDimContiguous(v);
  const auto& [starts, longest, causal] = sequences;
  const double scale = params.scale;
  const int64_t window = params.window.size;
  at::Tensor out;
  if (IsHalf(q)) {
    out = NeedsGraph({q, k, v})
              ? FlashFunction::apply(queries, keys, values, starts, longest, causal, scale, window)
              : std::get<0>(
                    FlashForward(queries, keys, values, starts, longest, causal, scale, window));
  } else {
    out = NeedsGraph({q, k, v})
              ? EfficientFunction::apply(queries, keys, values, starts, longest, causal, scale)
              : std::get<0>(EfficientForward(queries, keys, values, starts, longest, causal, scale))
                    .squeeze(0);
  }
  return out.reshape({q.size(0), q.size(1) * v.size(2)});
}

}  // namespace tandem::model
