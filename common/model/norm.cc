#include "common/model/norm.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/device_row_gradients.h"
#include "common/model/device_row_ops.h"
#include "common/model/eager_ops.h"
#include "common/model/kernel_function.h"
#include "common/model/kernels/norm_rows.h"
#include "common/model/optional_tensor.h"
#include "common/model/step_memory.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Normed {
  at::Tensor sum;  // x, or x + delta
  at::Tensor out;
  at::Tensor
      moments;  // float32 [1 or 2, num_tokens], if requested: inverses, and a LayerNorm's means
};

Normed Forward(const at::Tensor& x, const at::Tensor& delta, const Norm& norm, bool for_backward) {
  if (x.is_cuda()) {
    Normed normed;
    ResidualNorm out = device::AddNorm(x, delta, norm, for_backward ? &normed.moments : nullptr);
    normed.sum = std::move(out.residual);
    normed.out = std::move(out.normed);
    return normed;
  }
  const at::Tensor in = x.contiguous();
  const at::Tensor added = ContiguousOrUndefined(delta);
  const at::Tensor weight = ContiguousOrUndefined(norm.weight);
  const at::Tensor bias = ContiguousOrUndefined(norm.bias);
  Normed normed{added.defined() ? EmptyAs(in) : in, EmptyAs(in), {}};
  const int64_t size = in.size(-1);
  const int64_t rows = in.numel() / size;
  kernels::NormForward args{ElementOf(in), size, norm.spec};
  args.x = in.const_data_ptr();
  args.weight = DataOrNull(weight);
  args.bias = DataOrNull(bias);
  args.out = normed.out.mutable_data_ptr();
  if (added.defined()) {
    args.delta = added.const_data_ptr();
    args.sum = normed.sum.mutable_data_ptr();
  }
  if (for_backward) {
    const bool has_mean = norm.spec.kind == NormKind::kLayer;
    normed.moments = at::empty({has_mean ? 2 : 1, rows}, at::kFloat);
    args.inverse = normed.moments.mutable_data_ptr<float>();
    if (has_mean) args.mean = args.inverse + rows;
  }
  ForRows(rows, size, [&](int64_t begin, int64_t end) { kernels::NormRows(args, begin, end); });
  return normed;
}

// Gradients of x (and of a delta, the same), weight and bias; the latter two are undefined unless
// requested.
using Gradients = device::NormGradients;

Gradients Backward(const Normed& saved, const at::Tensor& scale, const NormSpec& spec,
                   const at::Tensor& grad_out, const at::Tensor& grad_sum, bool want_weight,
                   bool want_bias) {
  const at::Tensor& x = saved.sum;
  if (x.is_cuda()) {
    return device::NormBackward(x, saved.moments, scale, spec, grad_out, grad_sum, want_weight,
                                want_bias);
  }
  const at::Tensor weight = ContiguousOrUndefined(scale);
  const at::Tensor grad = grad_out.contiguous();
  const at::Tensor extra = ContiguousOrUndefined(grad_sum);
  Gradients out{at::empty_like(x), {}, {}};
  const int64_t size = x.size(-1);
  const int64_t rows = x.numel() / size;
  kernels::NormBackward args{ElementOf(x), size, spec};
  args.x = x.const_data_ptr();
  args.weight = DataOrNull(weight);
  args.inverse = saved.moments.const_data_ptr<float>();
  if (spec.kind == NormKind::kLayer) args.mean = args.inverse + rows;
  args.grad_out = grad.const_data_ptr();
  args.grad_sum = DataOrNull(extra);
  args.grad_x = out.x.mutable_data_ptr();
  const int64_t sums = (want_weight ? size : 0) + (want_bias ? size : 0);
  if (sums == 0) {
    ForRows(rows, size, [&](int64_t begin, int64_t end) {
      kernels::NormBackwardRows(args, begin, end, nullptr, nullptr);
    });
    return out;
  }
  // The weight's sums, then the bias's.
  const at::Tensor summed =
      SumOverRows(rows, sums, [&](int64_t begin, int64_t end, float* to) {
        kernels::NormBackwardRows(args, begin, end, want_weight ? to : nullptr,
                                  want_bias ? to + (want_weight ? size : 0) : nullptr);
      }).to(x.scalar_type());
  if (want_weight) out.weight = summed.narrow(0, 0, size);
  if (want_bias) out.bias = summed.narrow(0, sums - size, size);
  return out;
}

// Saves the sum, the weight and the moments. Returns the normed rows and, if there is a delta, the
// sum.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const std::optional<at::Tensor>& delta,
                               const std::optional<at::Tensor>& weight,
                               const std::optional<at::Tensor>& bias, const NormSpec& spec) {
    const Norm norm{spec, weight.value_or(at::Tensor()), bias.value_or(at::Tensor())};
    Normed normed = Forward(x, delta.value_or(at::Tensor()), norm, /*for_backward=*/true);
    ctx->save_for_backward({normed.sum, norm.weight, normed.moments});
    ctx->set_materialize_grads(false);
    ctx->saved_data["has_delta"] = delta.has_value();
    ctx->saved_data["has_weight"] = weight.has_value();
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->saved_data["is_layer_norm"] = spec.kind == NormKind::kLayer;
    ctx->saved_data["unit_offset"] = spec.unit_offset;
    if (!delta.has_value()) return {normed.out};
    return {normed.out, normed.sum};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto flag = [ctx](const char* name) { return ctx->saved_data[name].toBool(); };
    const bool has_delta = flag("has_delta");
    const at::Tensor grad_sum = has_delta ? grads[1] : at::Tensor();
    variable_list result(5);
    if (!grads[0].defined()) {
      result[0] = grad_sum;
      if (has_delta) result[1] = grad_sum;
      return result;
    }
    NormSpec spec;
    spec.kind = flag("is_layer_norm") ? NormKind::kLayer : NormKind::kRms;
    spec.unit_offset = flag("unit_offset");
    // needs_input_grad() counts only the defined tensors.
    const size_t weight_at = has_delta ? 2 : 1;
    const size_t bias_at = weight_at + (flag("has_weight") ? 1 : 0);
    const bool want_weight = flag("has_weight") && ctx->needs_input_grad(weight_at);
    const bool want_bias = flag("has_bias") && ctx->needs_input_grad(bias_at);
    const variable_list saved = ctx->get_saved_variables();
    Gradients gradients = Backward({saved[0], {}, saved[2]}, saved[1], spec, grads[0], grad_sum,
                                   want_weight, want_bias);
    result[0] = gradients.x;
    if (has_delta) result[1] = gradients.x;
    result[2] = std::move(gradients.weight);
    result[3] = std::move(gradients.bias);
    return result;
  }
};

// The defined ones of x, delta, weight and bias, for an operation that takes all its inputs as a
// list, and their places in it.
struct NormInputs {
  NormInputs(const at::Tensor& x, const at::Tensor& delta, const Norm& norm)
      : spec(norm.spec),
        tensors{x},
        delta_at(Add(delta)),
        weight_at(Add(norm.weight)),
        bias_at(Add(norm.bias)) {}

  int Add(const at::Tensor& tensor) {
    if (!tensor.defined()) return -1;
    tensors.push_back(tensor);
    return static_cast<int>(tensors.size()) - 1;
  }
  static at::Tensor At(const variable_list& in, int place) {
    return place < 0 ? at::Tensor() : in[place];
  }
  Norm NormOf(const variable_list& in) const { return {spec, At(in, weight_at), At(in, bias_at)}; }

  NormSpec spec;
  variable_list tensors;
  int delta_at, weight_at, bias_at;
};

// The normed rows and, if there is a delta, the sum.
ResidualNorm InAten(const at::Tensor& x, const at::Tensor& delta, const Norm& norm) {
  const at::Tensor sum = delta.defined() ? at::add(x, delta) : x;
  return {sum, eager::Normalize(sum, norm)};
}

ResidualNorm WithGraph(const at::Tensor& x, const at::Tensor& delta, const Norm& norm) {
  variable_list outputs = NormFunction::apply(x, OptionalOf(delta), OptionalOf(norm.weight),
                                              OptionalOf(norm.bias), norm.spec);
  return {delta.defined() ? std::move(outputs[1]) : x, std::move(outputs[0])};
}

ResidualNorm OnDevice(const at::Tensor& x, const at::Tensor& delta, const Norm& norm) {
  if (!NeedsGraph({x, delta, norm.weight, norm.bias})) return device::AddNorm(x, delta, norm);
  if (device::NormGradientsTake()) return WithGraph(x, delta, norm);
  const NormInputs inputs(x, delta, norm);
  const auto results = [](ResidualNorm out, bool with_sum) {
    variable_list list{std::move(out.normed)};
    if (with_sum) list.push_back(std::move(out.residual));
    return list;
  };
  const bool adds = delta.defined();
  variable_list outputs = RecordedKernels(
      inputs.tensors,
      [&](const variable_list& in) {
        return results(
            device::AddNorm(in[0], NormInputs::At(in, inputs.delta_at), inputs.NormOf(in)), adds);
      },
      [inputs, adds, results](const variable_list& in) {
        return results(InAten(in[0], NormInputs::At(in, inputs.delta_at), inputs.NormOf(in)), adds);
      });
  return {adds ? std::move(outputs[1]) : x, std::move(outputs[0])};
}

}  // namespace

at::Tensor Sum(const Residual& residual) {
  const auto& [x, delta] = residual;
  if (!delta.defined()) return x;
  if (!KernelsTake({x, delta}) || NeedsGraph({x, delta})) return at::add(x, delta);
  const at::Tensor a = x.contiguous();
  const at::Tensor b = delta.contiguous();
  at::Tensor sum = EmptyAs(a);
  const int64_t size = a.size(-1);
  ForRows(a.numel() / size, size, [&](int64_t begin, int64_t end) {
    kernels::AddRows(ElementOf(a), size, a.const_data_ptr(), b.const_data_ptr(),
                     sum.mutable_data_ptr(), begin, end);
  });
  return sum;
}

ResidualNorm AddNorm(const at::Tensor& x, const at::Tensor& delta, const Norm& norm) {
  if (device::KernelsTake({x, delta, norm.weight, norm.bias})) return OnDevice(x, delta, norm);
  if (!KernelsTake({x, delta, norm.weight, norm.bias})) return InAten(x, delta, norm);
  if (NeedsGraph({x, delta, norm.weight, norm.bias})) return WithGraph(x, delta, norm);
  Normed normed = Forward(x, delta, norm, /*for_backward=*/false);
  return {delta.defined() ? std::move(normed.sum) : x, std::move(normed.out)};
}

at::Tensor Normalize(const at::Tensor& x, const Norm& norm) {
  return AddNorm(x, at::Tensor(), norm).normed;
}

}  // namespace tandem::model
