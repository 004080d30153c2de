#include "common/model/general_rotation.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/model/cpu_dispatch.h"
#include "common/model/kernels/head_ops.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const char* ColumnsAt(const at::Tensor& tensor, int64_t column) {
  return static_cast<const char*>(tensor.const_data_ptr()) + column * tensor.element_size();
}

kernels::HeadNorm NormOf(const HeadRotation& rotation, const NormTensors& tensors) {
  kernels::HeadNorm norm;
  if (!rotation.norm.has_value()) return norm;
  const QkNormSpec& spec = *rotation.norm;
  using Kind = kernels::HeadNorm::Kind;
  norm.kind = spec.norm.kind == NormKind::kRms ? Kind::kRms : Kind::kLayer;
  norm.after_rotation = spec.after_rotation;
  norm.all_heads = spec.over == QkNormSpec::Over::kAllHeads;
  norm.own_weights = spec.over == QkNormSpec::Over::kEachHead;
  norm.unit_offset = spec.norm.unit_offset;
  norm.eps = static_cast<float>(spec.norm.eps);
  norm.weight = DataOrNull(tensors.weight);
  norm.bias = DataOrNull(tensors.bias);
  return norm;
}

// The operations of q or of k. The tensors of `rotation` are contiguous and outlive them.
kernels::HeadOps OpsOf(const at::Tensor& qkv, const HeadRotation& rotation, bool of_queries) {
  kernels::HeadOps ops;
  ops.type = ElementOf(qkv);
  ops.num_heads = of_queries ? rotation.shape.num_heads : rotation.shape.num_kv_heads;
  ops.head_dim = rotation.shape.head_dim;
  ops.norm = NormOf(rotation, of_queries ? rotation.q_norm : rotation.k_norm);
  ops.cos = DataOrNull<float>(rotation.angles.cos);
  ops.sin = DataOrNull<float>(rotation.angles.sin);
  if (ops.cos != nullptr) ops.rotary_dim = 2 * rotation.angles.cos.size(1);
  ops.interleaved = rotation.angles.interleaved;
  if (of_queries) ops.row_scale = DataOrNull<float>(rotation.query_scale);
  return ops;
}

at::Tensor Transformed(const at::Tensor& qkv, const kernels::HeadOps& ops, int64_t column) {
  const int64_t rows = qkv.size(0);
  const int64_t width = ops.num_heads * ops.head_dim;
  at::Tensor out = EmptyTensor({rows, ops.num_heads, ops.head_dim}, qkv.options());
  const kernels::HeadRowsIn from{ColumnsAt(qkv, column), qkv.stride(0)};
  const kernels::HeadRowsOut to{out.mutable_data_ptr(), width};
  ForRows(rows, width,
          [&](int64_t begin, int64_t end) { kernels::TransformHeads(ops, from, to, begin, end); });
  return out;
}

// Heads of `in`, a contiguous projection; `rotation` has contiguous tensors.
Qkv RotateContiguous(const at::Tensor& in, const HeadRotation& rotation) {
  const QkvShape& shape = rotation.shape;
  const int64_t k_column = shape.num_heads * shape.head_dim;
  const int64_t v_column = k_column + shape.num_kv_heads * shape.head_dim;
  return {
      Transformed(in, OpsOf(in, rotation, true), 0),
      Transformed(in, OpsOf(in, rotation, false), k_column),
      in.narrow(1, v_column, shape.v_size()).unflatten(1, {shape.num_kv_heads, shape.value_dim()})};
}

// Writes the heads' columns of grad_qkv; returns the gradients of the norm's tensors.
NormTensors TransformedBack(const at::Tensor& grad_out, const at::Tensor& qkv,
                            const HeadRotation& rotation, bool of_queries, int64_t column,
                            const at::Tensor& grad_qkv) {
  const kernels::HeadOps ops = OpsOf(grad_qkv, rotation, of_queries);
  const int64_t width = ops.num_heads * ops.head_dim;
  if (!grad_out.defined()) {
    grad_qkv.narrow(1, column, width).zero_();
    return {};
  }
  const at::Tensor grad = grad_out.contiguous();
  const int64_t rows = grad.size(0);
  const kernels::HeadRowsIn from{grad.const_data_ptr(), width};
  const kernels::HeadRowsOut to{const_cast<char*>(ColumnsAt(grad_qkv, column)), grad_qkv.stride(0)};
  if (!rotation.norm.has_value()) {
    ForRows(rows, width, [&](int64_t begin, int64_t end) {
      kernels::TransformHeadsBackward(ops, {}, from, to, begin, end, nullptr);
    });
    return {};
  }
  const kernels::HeadRowsIn in{ColumnsAt(qkv, column), qkv.stride(0)};
  const int64_t weights = ops.Width();
  const at::Tensor sums =
      SumOverRows(rows, 2 * weights, [&](int64_t begin, int64_t end, float* out) {
        kernels::TransformHeadsBackward(ops, in, from, to, begin, end, out);
      });
  const NormTensors& norm = of_queries ? rotation.q_norm : rotation.k_norm;
  NormTensors grads;
  if (norm.weight.defined()) {
    grads.weight =
        sums.narrow(0, 0, weights).view(norm.weight.sizes()).to(norm.weight.scalar_type());
  }
  if (norm.bias.defined()) {
    grads.bias =
        sums.narrow(0, weights, weights).view(norm.bias.sizes()).to(norm.bias.scalar_type());
  }
  return grads;
}

struct RotateGenerallyFunction : torch::autograd::Function<RotateGenerallyFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& qkv,
                               const std::optional<at::Tensor>& q_weight,
                               const std::optional<at::Tensor>& q_bias,
                               const std::optional<at::Tensor>& k_weight,
                               const std::optional<at::Tensor>& k_bias,
                               const HeadRotation& rotation) {
    const at::Tensor in = qkv.contiguous();
    Qkv out = RotateContiguous(in, rotation);
    // Only the gradient of a norm needs the projection itself.
    ctx->save_for_backward({rotation.norm.has_value() ? in : at::Tensor(), rotation.q_norm.weight,
                            rotation.q_norm.bias, rotation.k_norm.weight, rotation.k_norm.bias,
                            rotation.angles.cos, rotation.angles.sin, rotation.query_scale});
    const QkvShape& shape = rotation.shape;
    ctx->saved_data["shape"] =
        std::vector<int64_t>{shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.v_head_dim};
    ctx->saved_data["interleaved"] = rotation.angles.interleaved;
    ctx->saved_data["normed"] = rotation.norm.has_value();
    const QkNormSpec norm = rotation.norm.value_or(QkNormSpec{});
    ctx->saved_data["norm"] =
        std::vector<int64_t>{static_cast<int64_t>(norm.over), norm.after_rotation,
                             static_cast<int64_t>(norm.norm.kind), norm.norm.unit_offset};
    ctx->saved_data["eps"] = norm.norm.eps;
    ctx->set_materialize_grads(false);
    return {std::move(out.q), std::move(out.k), std::move(out.v)};
  }

  static HeadRotation Saved(AutogradContext* ctx, const variable_list& saved) {
    HeadRotation rotation;
    const std::vector<int64_t> shape = ctx->saved_data["shape"].toIntVector();
    rotation.shape = {shape[0], shape[1], shape[2], shape[3]};
    if (ctx->saved_data["normed"].toBool()) {
      const std::vector<int64_t> norm = ctx->saved_data["norm"].toIntVector();
      QkNormSpec& spec = rotation.norm.emplace();
      spec.over = static_cast<QkNormSpec::Over>(norm[0]);
      spec.after_rotation = norm[1] != 0;
      spec.norm.kind = static_cast<NormKind>(norm[2]);
      spec.norm.unit_offset = norm[3] != 0;
      spec.norm.eps = ctx->saved_data["eps"].toDouble();
    }
    rotation.q_norm = {saved[1], saved[2]};
    rotation.k_norm = {saved[3], saved[4]};
    rotation.angles = {saved[5], saved[6], ctx->saved_data["interleaved"].toBool()};
    rotation.query_scale = saved[7];
    return rotation;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const HeadRotation rotation = Saved(ctx, saved);
    const QkvShape& shape = rotation.shape;
    const int64_t k_column = shape.num_heads * shape.head_dim;
    const int64_t v_column = k_column + shape.num_kv_heads * shape.head_dim;
    at::TensorOptions options;
    int64_t rows = 0;
    for (const at::Tensor& grad : grads) {
      if (!grad.defined()) continue;
      options = grad.options();
      rows = grad.size(0);
    }
    const at::Tensor grad_qkv = at::empty({rows, v_column + shape.v_size()}, options);
    const NormTensors q = TransformedBack(grads[0], saved[0], rotation, true, 0, grad_qkv);
    const NormTensors k = TransformedBack(grads[1], saved[0], rotation, false, k_column, grad_qkv);
    at::Tensor grad_v = grad_qkv.narrow(1, v_column, shape.v_size());
    if (grads[2].defined()) {
      grad_v.copy_(grads[2].reshape({-1, shape.v_size()}));
    } else {
      grad_v.zero_();
    }
    return {grad_qkv, q.weight, q.bias, k.weight, k.bias, at::Tensor()};
  }
};

}  // namespace

Qkv RotateGenerally(const at::Tensor& qkv, const HeadRotation& rotation) {
  HeadRotation contiguous = rotation;
  for (NormTensors* norm : {&contiguous.q_norm, &contiguous.k_norm}) {
    norm->weight = ContiguousOrUndefined(norm->weight);
    norm->bias = ContiguousOrUndefined(norm->bias);
  }
  const auto& [q_weight, q_bias] = contiguous.q_norm;
  const auto& [k_weight, k_bias] = contiguous.k_norm;
  if (!NeedsGraph({qkv, q_weight, q_bias, k_weight, k_bias})) {
    return RotateContiguous(qkv.contiguous(), contiguous);
  }
  variable_list out =
      RotateGenerallyFunction::apply(qkv, OptionalOf(q_weight), OptionalOf(q_bias),
                                     OptionalOf(k_weight), OptionalOf(k_bias), contiguous);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

}  // namespace tandem::model
