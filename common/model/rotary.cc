#include "common/model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "common/device/upload.h"
#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_gradients.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/general_rotation.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/row_ops.h"
#include "common/model/norm.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The heads of q or of k: those from column `column` of the projection on.
struct Heads {
  int64_t count;
  int64_t column;
};

struct Rotated {
  at::Tensor out;          // [num_tokens, heads, head_dim]
  at::Tensor inverse_rms;  // float32 [num_tokens, heads], if there is a norm and it is requested
};

const char* At(const at::Tensor& tensor, int64_t element) {
  return static_cast<const char*>(tensor.const_data_ptr()) + element * tensor.element_size();
}

Rotated Rotate(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
               const QkvShape& shape, const Heads& heads, const at::Tensor& norm, double eps,
               bool for_backward) {
  const int64_t rows = qkv.size(0);
  const int64_t width = heads.count * shape.head_dim;
  Rotated rotated{at::empty({rows, heads.count, shape.head_dim}, qkv.options()), {}};
  kernels::RotateForward args{ElementOf(qkv), heads.count, shape.head_dim};
  args.in = At(qkv, heads.column);
  args.in_row_stride = qkv.stride(0);
  args.out = rotated.out.mutable_data_ptr();
  args.out_row_stride = width;
  args.cos = cos.const_data_ptr<float>();
  args.sin = sin.const_data_ptr<float>();
  if (norm.defined()) {
    args.norm_weight = norm.const_data_ptr();
    args.eps = static_cast<float>(eps);
    if (for_backward) {
      rotated.inverse_rms = at::empty({rows, heads.count}, at::kFloat);
      args.inverse_rms = rotated.inverse_rms.mutable_data_ptr<float>();
    }
  }
  ForRows(rows, width, [&](int64_t begin, int64_t end) { kernels::RotateRows(args, begin, end); });
  return rotated;
}

// Writes the heads' columns of grad_qkv; returns the norm's gradient, or an undefined tensor.
at::Tensor RotateBack(const at::Tensor& grad_out, const at::Tensor& qkv, const at::Tensor& cos,
                      const at::Tensor& sin, const QkvShape& shape, const Heads& heads,
                      const at::Tensor& norm, const at::Tensor& inverse_rms,
                      const at::Tensor& grad_qkv) {
  if (!grad_out.defined()) {
    grad_qkv.narrow(1, heads.column, heads.count * shape.head_dim).zero_();
    return at::Tensor();
  }
  const at::Tensor grad = grad_out.contiguous();
  const int64_t rows = grad.size(0);
  const int64_t width = heads.count * shape.head_dim;
  kernels::RotateBackward args{ElementOf(grad), heads.count, shape.head_dim};
  args.grad_out = grad.const_data_ptr();
  args.grad_out_row_stride = width;
  args.grad_in = const_cast<char*>(At(grad_qkv, heads.column));
  args.grad_in_row_stride = grad_qkv.stride(0);
  args.cos = cos.const_data_ptr<float>();
  args.sin = sin.const_data_ptr<float>();
  if (!norm.defined()) {
    ForRows(rows, width, [&](int64_t begin, int64_t end) {
      kernels::RotateBackwardRows(args, begin, end, nullptr);
    });
    return at::Tensor();
  }
  args.norm_weight = norm.const_data_ptr();
  args.in = At(qkv, heads.column);
  args.in_row_stride = qkv.stride(0);
  args.inverse_rms = inverse_rms.const_data_ptr<float>();
  // Rows of the sum are tokens; a token's heads are as much work as `width` elements.
  const at::Tensor grad_norm =
      SumOverRows(rows, shape.head_dim, [&](int64_t begin, int64_t end, float* out) {
        kernels::RotateBackwardRows(args, begin, end, out);
      });
  return grad_norm.to(norm.scalar_type());
}

// A plain rotation. The norms' weights are both defined or neither is.
HeadRotation PlainRotation(const at::Tensor& cos, const at::Tensor& sin, const QkvShape& shape,
                           const at::Tensor& q_norm, const at::Tensor& k_norm, double eps) {
  HeadRotation rotation{.angles = {cos, sin}, .shape = shape};
  if (!q_norm.defined()) return rotation;
  rotation.norm.emplace();
  rotation.norm->norm.eps = eps;
  rotation.q_norm.weight = q_norm;
  rotation.k_norm.weight = k_norm;
  return rotation;
}

struct RotateQkvFunction : torch::autograd::Function<RotateQkvFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& cos,
                               const at::Tensor& sin, int64_t num_heads, int64_t num_kv_heads,
                               int64_t head_dim, int64_t v_head_dim,
                               const std::optional<at::Tensor>& q_norm,
                               const std::optional<at::Tensor>& k_norm, double eps) {
    const QkvShape shape{num_heads, num_kv_heads, head_dim, v_head_dim};
    const at::Tensor q_weight = q_norm.value_or(at::Tensor());
    const at::Tensor k_weight = k_norm.value_or(at::Tensor());
    const at::Tensor in = qkv.contiguous();
    Rotated q, k;
    if (in.is_cuda()) {
      Qkv out = device::RotateQkv(in, PlainRotation(cos, sin, shape, q_weight, k_weight, eps));
      q.out = std::move(out.q);
      k.out = std::move(out.k);
    } else {
      q = Rotate(in, cos, sin, shape, {num_heads, 0}, q_weight, eps, true);
      k = Rotate(in, cos, sin, shape, {num_kv_heads, num_heads * head_dim}, k_weight, eps, true);
    }
    // Only the gradient of a norm needs the projection itself.
    ctx->save_for_backward({cos, sin, q_weight.defined() ? in : at::Tensor(), q_weight, k_weight,
                            q.inverse_rms, k.inverse_rms});
    ctx->saved_data["shape"] = std::vector<int64_t>{num_heads, num_kv_heads, head_dim, v_head_dim};
    ctx->saved_data["eps"] = eps;
    ctx->set_materialize_grads(false);
    const int64_t v_column = (num_heads + num_kv_heads) * head_dim;
    const at::Tensor v =
        in.narrow(1, v_column, shape.v_size()).unflatten(1, {num_kv_heads, shape.value_dim()});
    return {q.out, k.out, v};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> sizes = ctx->saved_data["shape"].toIntVector();
    const QkvShape shape{sizes[0], sizes[1], sizes[2], sizes[3]};
    const Heads q_heads{shape.num_heads, 0};
    const Heads k_heads{shape.num_kv_heads, shape.num_heads * shape.head_dim};
    const int64_t v_column = k_heads.column + shape.num_kv_heads * shape.head_dim;
    const int64_t v_size = shape.v_size();
    variable_list result(10);
    if (saved[0].is_cuda()) {
      device::RotationGradients gradients =
          device::RotateBackward(saved[2],
                                 PlainRotation(saved[0], saved[1], shape, saved[3], saved[4],
                                               ctx->saved_data["eps"].toDouble()),
                                 {grads[0], grads[1], grads[2]});
      result[0] = std::move(gradients.qkv);
      result[7] = std::move(gradients.q_norm);
      result[8] = std::move(gradients.k_norm);
      return result;
    }
    at::TensorOptions options;
    for (const at::Tensor& grad : grads) {
      if (grad.defined()) options = grad.options();
    }
    const at::Tensor grad_qkv = at::empty({saved[0].size(0), v_column + v_size}, options);
    const at::Tensor grad_q_norm = RotateBack(grads[0], saved[2], saved[0], saved[1], shape,
                                              q_heads, saved[3], saved[5], grad_qkv);
    const at::Tensor grad_k_norm = RotateBack(grads[1], saved[2], saved[0], saved[1], shape,
                                              k_heads, saved[4], saved[6], grad_qkv);
    at::Tensor grad_v = grad_qkv.narrow(1, v_column, v_size);
    if (grads[2].defined()) {
      grad_v.copy_(grads[2].reshape({-1, v_size}));
    } else {
      grad_v.zero_();
    }
    result[0] = grad_qkv;
    result[7] = grad_q_norm;
    result[8] = grad_k_norm;
    return result;
  }
};

// A plain rotation with a graph.
Qkv RotateQkvDifferentiably(const at::Tensor& qkv, const HeadRotation& rotation) {
  const QkvShape& shape = rotation.shape;
  const double eps = rotation.norm.has_value() ? rotation.norm->norm.eps : 0.0;
  variable_list out = RotateQkvFunction::apply(
      qkv, rotation.angles.cos, rotation.angles.sin, shape.num_heads, shape.num_kv_heads,
      shape.head_dim, shape.v_head_dim, OptionalOf(ContiguousOrUndefined(rotation.q_norm.weight)),
      OptionalOf(ContiguousOrUndefined(rotation.k_norm.weight)), eps);
  return {std::move(out[0]), std::move(out[1]), std::move(out[2])};
}

// With a graph, on a GPU, where no kernel differentiates it.
Qkv RotateQkvRecorded(const at::Tensor& qkv, const HeadRotation& rotation) {
  // The tensors that have gradients; their places in the inputs, 0 for those that do not exist.
  variable_list inputs = {qkv};
  const auto add = [&inputs](const at::Tensor& tensor) -> size_t {
    if (!tensor.defined()) return 0;
    inputs.push_back(tensor);
    return inputs.size() - 1;
  };
  const size_t q_weight = add(rotation.q_norm.weight);
  const size_t q_bias = add(rotation.q_norm.bias);
  const size_t k_weight = add(rotation.k_norm.weight);
  const size_t k_bias = add(rotation.k_norm.bias);
  const auto with = [=](const variable_list& in) {
    const auto at = [&in](size_t place) { return place > 0 ? in[place] : at::Tensor(); };
    HeadRotation given = rotation;
    given.q_norm = {at(q_weight), at(q_bias)};
    given.k_norm = {at(k_weight), at(k_bias)};
    return given;
  };
  variable_list rotated = RecordedKernels(
      inputs,
      [=](const variable_list& in) {
        Qkv out = device::RotateQkv(in[0], with(in));
        return variable_list{std::move(out.q), std::move(out.k)};
      },
      [=](const variable_list& in) {
        Qkv out = eager::RotateQkv(in[0], with(in));
        return variable_list{std::move(out.q), std::move(out.k)};
      });
  const QkvShape& shape = rotation.shape;
  const int64_t v_size = shape.v_size();
  return {std::move(rotated[0]), std::move(rotated[1]),
          qkv.narrow(1, qkv.size(1) - v_size, v_size)
              .unflatten(1, {shape.num_kv_heads, shape.value_dim()})};
}

bool IsFloat(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.scalar_type() == at::kFloat;
}

// Without a norm of values.
Qkv RotateQueriesAndKeys(const at::Tensor& qkv, const HeadRotation& rotation);

}  // namespace

bool HeadRotation::IsPlain() const {
  if (!angles.cos.defined() || 2 * angles.cos.size(1) != shape.head_dim || angles.interleaved ||
      query_scale.defined()) {
    return false;
  }
  if (!norm.has_value()) return true;
  return norm->IsPlain();
}

RotaryAngles AnglesOf(const at::Tensor& positions, const at::Tensor& inverse_frequencies,
                      double factor) {
  const at::NoGradGuard no_grad;
  if (device::HasRotaryTable(positions, inverse_frequencies)) {
    return device::RotaryTable(positions, inverse_frequencies, factor);
  }
  if (!positions.is_cpu()) {
    const at::Tensor angles =
        at::outer(positions.to(at::kFloat),
                  ::tandem::device::Upload(inverse_frequencies, positions.device()));
    if (factor == 1.0) return {angles.cos(), angles.sin()};
    return {angles.cos() * factor, angles.sin() * factor};
  }
  // Computes each angle on its own: a vector library's result may depend on the angle's place among
  // the others.
  const at::Tensor places = positions.contiguous();
  const int64_t size = inverse_frequencies.numel();
  RotaryAngles angles{EmptyTensor({places.numel(), size}, at::kFloat),
                      EmptyTensor({places.numel(), size}, at::kFloat)};
  const int64_t* const position = places.const_data_ptr<int64_t>();
  const float* const frequency = inverse_frequencies.const_data_ptr<float>();
  const auto scale = static_cast<float>(factor);
  float* const cos = angles.cos.mutable_data_ptr<float>();
  float* const sin = angles.sin.mutable_data_ptr<float>();
  ForRows(places.numel(), size * 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < size; ++j) {
        const float angle = static_cast<float>(position[i]) * frequency[j];
        cos[i * size + j] = std::cos(angle) * scale;
        sin[i * size + j] = std::sin(angle) * scale;
      }
    }
  });
  return angles;
}

Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation) {
  if (!rotation.value_norm.has_value()) return RotateQueriesAndKeys(qkv, rotation);
  HeadRotation of_queries_and_keys = rotation;
  of_queries_and_keys.value_norm.reset();
  Qkv out = RotateQueriesAndKeys(qkv, of_queries_and_keys);
  const at::Tensor values = out.v.reshape({-1, rotation.shape.value_dim()});
  out.v = Normalize(values, {*rotation.value_norm, {}, {}}).view(out.v.sizes());
  return out;
}

namespace {

Qkv RotateQueriesAndKeys(const at::Tensor& qkv, const HeadRotation& rotation) {
  const auto& [q_weight_given, q_bias] = rotation.q_norm;
  const auto& [k_weight_given, k_bias] = rotation.k_norm;
  const std::initializer_list<at::Tensor> tensors = {qkv, q_weight_given, q_bias, k_weight_given,
                                                     k_bias};
  const bool in_float = IsFloat(rotation.angles.cos) && IsFloat(rotation.query_scale);
  // The device's kernel takes a head's elements in pairs.
  if (device::KernelsTake(tensors) && in_float && rotation.shape.head_dim % 2 == 0) {
    if (!NeedsGraph(tensors)) return device::RotateQkv(qkv, rotation);
    // The kernel for gradients wants keys.
    const bool has_kernel =
        rotation.shape.num_kv_heads > 0 && device::RotationGradientsTake(rotation);
    return has_kernel ? RotateQkvDifferentiably(qkv, rotation) : RotateQkvRecorded(qkv, rotation);
  }
  if (!KernelsTake(tensors) || !in_float) return eager::RotateQkv(qkv, rotation);
  if (!rotation.IsPlain()) return RotateGenerally(qkv, rotation);
  if (NeedsGraph(tensors)) return RotateQkvDifferentiably(qkv, rotation);

  const QkvShape& shape = rotation.shape;
  const at::Tensor& cos = rotation.angles.cos;
  const at::Tensor& sin = rotation.angles.sin;
  const at::Tensor q_weight = ContiguousOrUndefined(q_weight_given);
  const at::Tensor k_weight = ContiguousOrUndefined(k_weight_given);
  const double eps = rotation.norm.has_value() ? rotation.norm->norm.eps : 0.0;
  const at::Tensor in = qkv.contiguous();
  const int64_t k_column = shape.num_heads * shape.head_dim;
  const int64_t v_column = k_column + shape.num_kv_heads * shape.head_dim;
  Rotated q = Rotate(in, cos, sin, shape, {shape.num_heads, 0}, q_weight, eps, false);
  Rotated k = Rotate(in, cos, sin, shape, {shape.num_kv_heads, k_column}, k_weight, eps, false);
  return {
      std::move(q.out), std::move(k.out),
      in.narrow(1, v_column, shape.v_size()).unflatten(1, {shape.num_kv_heads, shape.value_dim()})};
}

}  // namespace

}  // namespace tandem::model
