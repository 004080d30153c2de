#include "tools/tandem/gpu_check/kernels/attention_reference.h"

#include <ATen/ATen.h>

#include <limits>

namespace tandem::gpu_check {
namespace {

// [heads, tokens, head_dim], each key-value head as often as query heads share it.
at::Tensor ByHead(const at::Tensor& x, int64_t num_heads) {
  return x.to(at::kDouble).repeat_interleave(num_heads / x.size(1), 1).transpose(0, 1);
}

// [n, context]: true if a query (row) must not see a key.
at::Tensor Hidden(int64_t n, int64_t context, const model::Window& window, at::Device device) {
  const auto kind = at::TensorOptions(at::kLong).device(device);
  const at::Tensor own = at::arange(context - n, context, kind).unsqueeze(1);
  const at::Tensor keys = at::arange(context, kind).unsqueeze(0);
  const at::Tensor distance = own - keys;
  const at::Tensor later = distance.lt(0);
  if (!window.IsLimited()) return later;
  if (window.chunked)
    return later.logical_or(own.floor_divide(window.size).gt(keys.floor_divide(window.size)));
  return later.logical_or(distance.ge(window.size));
}

}  // namespace

at::Tensor AttentionReference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::AttentionParams& params) {
  const int64_t n = q.size(0), num_heads = q.size(1), context = k.size(0);
  at::Tensor scores =
      at::bmm(ByHead(q, num_heads), ByHead(k, num_heads).transpose(1, 2)) * params.scale;
  if (params.softcap > 0) scores = at::tanh(scores / params.softcap) * params.softcap;
  scores = scores.masked_fill(Hidden(n, context, params.window, q.device()),
                              -std::numeric_limits<double>::infinity());
  if (params.sinks.has_value()) {
    const at::Tensor sinks = params.sinks->to(at::kDouble).to(q.device());
    scores = at::cat({scores, sinks.view({-1, 1, 1}).expand({num_heads, n, 1})}, -1);
  }
  const at::Tensor probabilities = at::softmax(scores, -1).narrow(-1, 0, context);
  return at::bmm(probabilities, ByHead(v, num_heads)).transpose(0, 1).flatten(1);
}

}  // namespace tandem::gpu_check
