#include "common/model/cpu_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

#include "common/model/cpu_dispatch.h"
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

struct AttentionTensors {
  at::Tensor q, k, v;
  CpuSequences sequences;
  at::Tensor sinks;  // float32, or undefined
};

kernels::AttentionShape ShapeOf(const AttentionTensors& tensors, const AttentionParams& params) {
  const auto& [q, k, v, sequences, sinks] = tensors;
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
  shape.causal = sequences.causal;
  shape.num_sequences = sequences.cu_seqlens.numel() - 1;
  shape.cu_seqlens = sequences.cu_seqlens.const_data_ptr<int64_t>();
  if (sequences.prefixes.defined()) {
    shape.prefixes = sequences.prefixes.const_data_ptr<int64_t>();
  }
  if (sequences.seen_ends.defined()) {
    shape.seen_ends = sequences.seen_ends.const_data_ptr<int64_t>();
  }
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
                            const std::optional<at::Tensor>& seen_ends, bool causal,
                            const AttentionParams& params) {
    const at::Tensor prefixes = shared.value_or(at::Tensor());
    const at::Tensor ends = seen_ends.value_or(at::Tensor());
    const AttentionTensors tensors{q, k, v, {cu_seqlens, prefixes, causal, ends}, FloatsOf(sinks)};
    at::Tensor out = at::empty({q.size(0), q.size(1) * v.size(2)}, q.options());
    at::Tensor log_sum_exp = at::empty({q.size(0), q.size(1)}, at::kFloat);
    kernels::AttentionForward(ShapeOf(tensors, params), out.mutable_data_ptr(),
                              log_sum_exp.mutable_data_ptr<float>(), at::get_num_threads(),
                              AsParallelFor());
    ctx->save_for_backward(
        {q, k, v, cu_seqlens, prefixes, sinks.value_or(at::Tensor()), out, log_sum_exp, ends});
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["scale"] = params.scale;
    ctx->saved_data["softcap"] = params.softcap;
    ctx->saved_data["window"] = params.window.size;
    ctx->saved_data["chunked"] = params.window.chunked;
    ctx->saved_data["alibi_scale"] = params.alibi.scale;
    ctx->saved_data["alibi_heads"] =
        std::vector<int64_t>{params.alibi.num_heads, params.alibi.first_head};
    return out;
  }

  static AttentionParams Saved(AutogradContext* ctx) {
    AttentionParams params;
    params.scale = ctx->saved_data["scale"].toDouble();
    params.softcap = ctx->saved_data["softcap"].toDouble();
    params.window = {ctx->saved_data["window"].toInt(), ctx->saved_data["chunked"].toBool()};
    const std::vector<int64_t> heads = ctx->saved_data["alibi_heads"].toIntVector();
    params.alibi = {ctx->saved_data["alibi_scale"].toDouble(), heads[0], heads[1]};
    return params;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& q = saved[0];
    const at::Tensor& k = saved[1];
    const at::Tensor& sinks = saved[5];
    const AttentionTensors tensors{
        q,
        k,
        saved[2],
        {saved[3], saved[4], ctx->saved_data["causal"].toBool(), saved[8]},
        sinks.defined() ? FloatsOf(sinks) : sinks};
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
      grad_sinks = at::zeros({tensors.sequences.cu_seqlens.numel() - 1, q.size(1)}, at::kFloat);
      gradients.grad_sinks = grad_sinks.mutable_data_ptr<float>();
    }
    kernels::AttentionBackward(ShapeOf(tensors, Saved(ctx)), gradients, at::get_num_threads(),
                               AsParallelFor());
    if (sinks.defined()) grad_sinks = SumOverSequences(grad_sinks).to(sinks.scalar_type());
    variable_list result(9);
    result[0] = grad_q;
    result[1] = grad_k;
    result[2] = grad_v;
    result[3] = grad_sinks;
    return result;
  }
};

}  // namespace

at::Tensor CpuAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const CpuSequences& sequences, const AttentionParams& params) {
  const at::Tensor queries = WithHeadsTogether(q);
  const at::Tensor keys = WithHeadsTogether(k);
  const at::Tensor values = WithHeadsTogether(v);
  if (NeedsGraph({q, k, v, params.sinks.value_or(at::Tensor())})) {
    const auto if_defined = [](const at::Tensor& x) {
      return x.defined() ? std::optional<at::Tensor>(x) : std::nullopt;
    };
    return AttentionFunction::apply(queries, keys, values, params.sinks, sequences.cu_seqlens,
                                    if_defined(sequences.prefixes), if_defined(sequences.seen_ends),
                                    sequences.causal, params);
  }
  at::Tensor out = at::empty({q.size(0), q.size(1) * v.size(2)}, q.options());
  kernels::AttentionForward(
      ShapeOf({queries, keys, values, sequences, FloatsOf(params.sinks)}, params),
      out.mutable_data_ptr(), nullptr, at::get_num_threads(), AsParallelFor());
  return out;
}

}  // namespace tandem::model
