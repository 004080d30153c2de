#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <vector>

#include "common/model/delta_attention.h"
#include "common/model/eager_ops.h"

namespace tandem::model::eager {
namespace {

// One sequence. wide: [num_tokens, projected_size] in the type of the sums.
at::Tensor OfSequence(const DeltaSpec& spec, const at::Tensor& wide, const DeltaTensors& tensors) {
  const int64_t n = wide.size(0);
  const int64_t group = spec.num_value_heads / spec.num_key_heads;
  const at::Tensor inputs = wide.narrow(1, 0, spec.convolved_size());
  // [channels, kernel_size], the oldest token's weight first
  const at::Tensor weights = tensors.convolution.squeeze(1).to(wide.scalar_type());
  const at::Tensor padded = at::constant_pad_nd(inputs, {0, 0, spec.kernel_size - 1, 0});
  at::Tensor convolved = at::zeros_like(inputs);
  for (int64_t i = 0; i < spec.kernel_size; ++i) {
    convolved = convolved + padded.narrow(0, i, n) * weights.select(1, i);
  }
  convolved = at::silu(convolved);
  const auto heads = [&](const at::Tensor& x, int64_t column, int64_t count, int64_t dim) {
    return x.narrow(1, column, count * dim).view({n, count, dim});
  };
  const auto unit = [](const at::Tensor& x) {
    return x * at::rsqrt(x.square().sum(-1, /*keepdim=*/true) + kernels::kDeltaNormEps);
  };
  const at::Tensor q =
      unit(heads(convolved, 0, spec.num_key_heads, spec.key_dim)).repeat_interleave(group, 1) /
      std::sqrt(static_cast<double>(spec.key_dim));
  const at::Tensor k = unit(heads(convolved, spec.key_size(), spec.num_key_heads, spec.key_dim))
                           .repeat_interleave(group, 1);
  const at::Tensor v = heads(convolved, 2 * spec.key_size(), spec.num_value_heads, spec.value_dim);
  const at::Tensor z = heads(wide, spec.convolved_size(), spec.num_value_heads, spec.value_dim);
  const int64_t column = spec.convolved_size() + spec.value_size();
  const at::Tensor beta = at::sigmoid(wide.narrow(1, column, spec.num_value_heads));
  const at::Tensor steps =
      at::softplus(wide.narrow(1, column + spec.num_value_heads, spec.num_value_heads) +
                   tensors.dt_bias.to(wide.scalar_type()));
  const at::Tensor decay = at::exp(-at::exp(tensors.a_log.to(wide.scalar_type())) * steps);
  at::Tensor state =
      at::zeros({spec.num_value_heads, spec.key_dim, spec.value_dim}, wide.options());
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < n; ++t) {
    const at::Tensor key = k[t].unsqueeze(2);  // [heads, key_dim, 1]
    state = state * decay[t].view({-1, 1, 1});
    const at::Tensor error = v[t] - (state * key).sum(1);  // [heads, value_dim]
    state = state + key * (beta[t].unsqueeze(1) * error).unsqueeze(1);
    out.push_back((state * q[t].unsqueeze(2)).sum(1));
  }
  const at::Tensor read = at::stack(out);  // [n, heads, value_dim]
  const at::Tensor normed =
      read * at::rsqrt(read.square().mean(-1, /*keepdim=*/true) + spec.norm_eps);
  return (normed * tensors.norm.to(wide.scalar_type()) * at::silu(z)).view({n, -1});
}

}  // namespace

at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const at::Tensor& cu_seqlens) {
  const at::Tensor wide = Wide(tensors.projected);
  const int64_t* const ends = cu_seqlens.const_data_ptr<int64_t>();
  std::vector<at::Tensor> out = {wide.narrow(1, 0, spec.value_size()).narrow(0, 0, 0)};
  for (int64_t i = 0; i + 1 < cu_seqlens.numel(); ++i) {
    if (ends[i + 1] == ends[i]) continue;
    out.push_back(OfSequence(spec, wide.narrow(0, ends[i], ends[i + 1] - ends[i]), tensors));
  }
  return at::cat(out).to(tensors.projected.scalar_type());
}

}  // namespace tandem::model::eager
