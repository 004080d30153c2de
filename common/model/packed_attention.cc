#include "common/model/packed_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "common/model/chunked_attention.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/device_packed_attention.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/attention.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The layout that the kernels need for q, k and v: the heads of a token are contiguous.
at::Tensor WithHeadsTogether(const at::Tensor& x) {
  const bool together = x.stride(2) == 1 && x.stride(1) == x.size(2);
  return together ? x : x.contiguous();
}

const kernels::ParallelFor& Threads() {
  static const kernels::ParallelFor threads = ForTasks;
  return threads;
}

struct AttentionTensors {
  at::Tensor q, k, v, cu_seqlens;
  at::Tensor prefixes;  // or undefined
  at::Tensor sinks;     // float32, or undefined
};

kernels::AttentionShape ShapeOf(const AttentionTensors& tensors, const AttentionParams& params) {
  const auto& [q, k, v, cu_seqlens, prefixes, sinks] = tensors;
  kernels::AttentionShape shape;
  shape.type = ElementOf(q);
  shape.num_heads = q.size(1);
  shape.num_kv_heads = k.size(1);
  shape.head_dim = q.size(2);
  shape.v_head_dim = v.size(2);
  shape.scale = static_cast<float>(params.scale);
  shape.softcap = static_cast<float>(params.softcap);
  shape.alibi = params.alibi;
  if (sinks.defined()) shape.sinks = sinks.const_data_ptr<float>();
  shape.window = params.window;
  shape.num_sequences = cu_seqlens.numel() - 1;
  shape.cu_seqlens = cu_seqlens.const_data_ptr<int64_t>();
  if (prefixes.defined()) shape.prefixes = prefixes.const_data_ptr<int64_t>();
  shape.q = q.const_data_ptr();
  shape.k = k.const_data_ptr();
  shape.v = v.const_data_ptr();
  shape.q_stride = q.stride(0);
  shape.k_stride = k.stride(0);
  shape.v_stride = v.stride(0);
  return shape;
}

at::Tensor FloatsOf(const std::optional<at::Tensor>& sinks) {
  return sinks.has_value() ? sinks->to(at::kFloat).contiguous() : at::Tensor();
}

// Returns the sums over sequences, in their order, of float32 [num_sequences, num_heads].
at::Tensor SumOverSequences(const at::Tensor& parts) {
  const int64_t heads = parts.size(1);
  at::Tensor sums = at::zeros({heads}, at::kFloat);
  const float* const from = parts.const_data_ptr<float>();
  float* const to = sums.mutable_data_ptr<float>();
  for (int64_t i = 0; i < parts.numel(); ++i) to[i % heads] += from[i];
  return sums;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  // `params` are read without their sinks.
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                            const at::Tensor& cu_seqlens, const std::optional<at::Tensor>& shared,
                            const AttentionParams& params) {
    const AttentionTensors tensors{
        q, k, v, cu_seqlens, shared.value_or(at::Tensor()), FloatsOf(sinks)};
    at::Tensor out = at::empty({q.size(0), q.size(1) * v.size(2)}, q.options());
    at::Tensor log_sum_exp = at::empty({q.size(0), q.size(1)}, at::kFloat);
    kernels::AttentionForward(ShapeOf(tensors, params), out.mutable_data_ptr(),
                              log_sum_exp.mutable_data_ptr<float>(), at::get_num_threads(),
                              Threads());
    ctx->save_for_backward(
        {q, k, v, cu_seqlens, tensors.prefixes, sinks.value_or(at::Tensor()), out, log_sum_exp});
    ctx->saved_data["scale"] = params.scale;
    ctx->saved_data["softcap"] = params.softcap;
    ctx->saved_data["window"] = params.window;
    ctx->saved_data["alibi_scale"] = params.alibi.scale;
    ctx->saved_data["alibi_heads"] =
        std::vector<int64_t>{params.alibi.num_heads, params.alibi.first_head};
    return out;
  }

  static AttentionParams Saved(AutogradContext* ctx) {
    AttentionParams params;
    params.scale = ctx->saved_data["scale"].toDouble();
    params.softcap = ctx->saved_data["softcap"].toDouble();
    params.window = ctx->saved_data["window"].toInt();
    const std::vector<int64_t> heads = ctx->saved_data["alibi_heads"].toIntVector();
    params.alibi = {ctx->saved_data["alibi_scale"].toDouble(), heads[0], heads[1]};
    return params;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& sinks = saved[5];
    const AttentionTensors tensors{q,        k,        saved[2],
                                   saved[3], saved[4], sinks.defined() ? FloatsOf(sinks) : sinks};
    const at::Tensor grad_out = grads[0].contiguous();
    at::Tensor grad_q = at::empty(q.sizes(), q.options());
    at::Tensor grad_k = at::empty(k.sizes(), k.options());
    at::Tensor grad_v = at::empty(saved[2].sizes(), k.options());
    at::Tensor grad_sinks;
    kernels::AttentionGradients gradients;
    gradients.out = saved[6].const_data_ptr();
    gradients.log_sum_exp = saved[7].const_data_ptr<float>();
    gradients.grad_out = grad_out.const_data_ptr();
    gradients.grad_q = grad_q.mutable_data_ptr();
    gradients.grad_k = grad_k.mutable_data_ptr();
    gradients.grad_v = grad_v.mutable_data_ptr();
    if (sinks.defined()) {
      // Zeros: an empty sequence has no task that writes its row.
      grad_sinks = at::zeros({tensors.cu_seqlens.numel() - 1, q.size(1)}, at::kFloat);
      gradients.grad_sinks = grad_sinks.mutable_data_ptr<float>();
    }
    kernels::AttentionBackward(ShapeOf(tensors, Saved(ctx)), gradients, at::get_num_threads(),
                               Threads());
    if (sinks.defined()) grad_sinks = SumOverSequences(grad_sinks).to(sinks.scalar_type());
    return {grad_q, grad_k, grad_v, grad_sinks, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor PackedAttention::Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                    const at::Tensor& v, const AttentionParams& params) {
  const at::Tensor sinks = params.sinks.value_or(at::Tensor());
  if (implementation_ == Implementation::kFast && device::PackedAttentionTakes(q, k, v)) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    if (!places_.defined()) places_ = device::PackedPlaces(cu_seqlens_, q.device());
    if (!NeedsGraph({q, k, v, sinks})) return device::PackedAttention(q, k, v, places_, params);
    variable_list inputs = {q, k, v};
    if (sinks.defined()) inputs.push_back(sinks);
    const auto with = [params](const variable_list& in) {
      AttentionParams given = params;
      if (given.sinks.has_value()) given.sinks = in[3];
      return given;
    };
    return RecordedKernels(
        inputs,
        [&](const variable_list& in) {
          return variable_list{device::PackedAttention(in[0], in[1], in[2], places_, with(in))};
        },
        [with, cu_seqlens = cu_seqlens_](const variable_list& in) {
          return variable_list{ChunkedAttention(in[0], in[1], in[2], cu_seqlens, with(in))};
        })[0];
  }
  if (implementation_ == Implementation::kEager || !KernelsTake({q, k, v})) {
    TORCH_CHECK(!prefixes_.defined(), "shared prefixes are for the CPU's kernels");
    if (implementation_ == Implementation::kEager) {
      return eager::PackedAttention(q, k, v, cu_seqlens_, params);
    }
    if (!FusedAttentionTakes(q, k, v, params)) {
      return ChunkedAttention(q, k, v, cu_seqlens_, params);
    }
    if (!sequences_.starts.defined()) sequences_ = FusedSequencesOf(cu_seqlens_, q.device());
    return FusedAttention(q, k, v, sequences_, params);
  }
  const at::Tensor queries = WithHeadsTogether(q);
  const at::Tensor keys = WithHeadsTogether(k);
  const at::Tensor values = WithHeadsTogether(v);
  if (NeedsGraph({q, k, v, sinks})) {
    std::optional<at::Tensor> shared;
    if (prefixes_.defined()) shared = prefixes_;
    return AttentionFunction::apply(queries, keys, values, params.sinks, cu_seqlens_, shared,
                                    params);
  }
  at::Tensor out = at::empty({q.size(0), q.size(1) * v.size(2)}, q.options());
  kernels::AttentionForward(
      ShapeOf({queries, keys, values, cu_seqlens_, prefixes_, FloatsOf(params.sinks)}, params),
      out.mutable_data_ptr(), nullptr, at::get_num_threads(), Threads());
  return out;
}

at::Tensor PackedAttention::ForwardDelta(int64_t layer, const DeltaSpec& spec,
                                         const DeltaTensors& tensors) {
  TORCH_CHECK(!prefixes_.defined(), "linear attention computes each sequence from its first token");
  return implementation_ == Implementation::kEager
             ? eager::DeltaAttention(spec, tensors, cu_seqlens_)
             : DeltaAttention(spec, tensors, cu_seqlens_);
}

at::Tensor PackedPositions(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor positions = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = positions.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    for (int64_t t = starts[i]; t < starts[i + 1]; ++t) out[t] = t - starts[i];
  }
  return positions;
}

at::Tensor PackedLengths(const at::Tensor& cu_seqlens) {
  const int64_t num_sequences = cu_seqlens.numel() - 1;
  const int64_t* const starts = cu_seqlens.const_data_ptr<int64_t>();
  at::Tensor lengths = at::empty({starts[num_sequences]}, at::kLong);
  int64_t* const out = lengths.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < num_sequences; ++i) {
    std::fill(out + starts[i], out + starts[i + 1], starts[i + 1] - starts[i]);
  }
  return lengths;
}

}  // namespace tandem::model
