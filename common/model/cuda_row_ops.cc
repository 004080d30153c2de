// Implements device_row_ops.h for builds with CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "common/model/cuda_row_product.h"
#include "common/model/cuda_tensor.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/cuda/few_rows_product.h"
#include "common/model/kernels/cuda/row_kernels.h"
#include "common/model/kernels/cuda/row_product.h"
#include "common/model/numerics.h"
#include "common/model/optional_tensor.h"

namespace tandem::model::device {
bool KernelsTake(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (!tensor.is_cuda()) return false;
    if (first == nullptr) first = &tensor;
    if (tensor.scalar_type() != first->scalar_type() || tensor.device() != first->device()) {
      return false;
    }
  }
  if (first == nullptr) return false;
  return first->scalar_type() == at::kFloat || first->scalar_type() == at::kBFloat16;
}

ResidualNorm AddNorm(const at::Tensor& x, const at::Tensor& delta, const Norm& norm,
                     at::Tensor* moments) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor in = x.contiguous();
  const at::Tensor added = ContiguousOrUndefined(delta);
  const at::Tensor weight = ContiguousOrUndefined(norm.weight);
  const at::Tensor bias = ContiguousOrUndefined(norm.bias);
  ResidualNorm result{added.defined() ? at::empty_like(in) : in, at::empty_like(in)};
  cuda::Norm args;
  args.type = CudaElementOf(in);
  args.spec = norm.spec;
  args.size = in.size(-1);
  args.rows = in.numel() / args.size;
  args.x = in.const_data_ptr();
  args.delta = DataOrNull(added);
  args.weight = DataOrNull(weight);
  args.bias = DataOrNull(bias);
  args.sum = added.defined() ? result.residual.mutable_data_ptr() : nullptr;
  args.out = result.normed.mutable_data_ptr();
  if (moments != nullptr) {
    const bool has_mean = norm.spec.kind == NormKind::kLayer;
    *moments = at::empty({has_mean ? 2 : 1, args.rows},
                         in.options().dtype(at::kFloat).requires_grad(false));
    args.inverse = moments->mutable_data_ptr<float>();
    if (has_mean) args.mean = args.inverse + args.rows;
  }
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return result;
}

at::Tensor Activate(const at::Tensor& x, const ActivationFunction& function) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor in = x.contiguous();
  const at::Tensor alphas = ContiguousOrUndefined(function.alphas);
  cuda::Activate args;
  args.type = CudaElementOf(in);
  args.activation = function.activation;
  args.gated = function.gated;
  args.rows = in.size(0);
  args.size = in.size(-1) / (function.gated ? 2 : 1);
  at::Tensor out = at::empty({args.rows, args.size}, in.options());
  args.in = in.const_data_ptr();
  args.out = out.mutable_data_ptr();
  args.alphas = DataOrNull(alphas);
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return out;
}

namespace {

void RotatePlainly(const at::Tensor& in, const HeadRotation& rotation, Qkv& out) {
  const at::Tensor q_weight = ContiguousOrUndefined(rotation.q_norm.weight);
  const at::Tensor k_weight = ContiguousOrUndefined(rotation.k_norm.weight);
  cuda::Rotate args;
  args.type = CudaElementOf(in);
  args.rows = in.size(0);
  args.num_heads = static_cast<int>(rotation.shape.num_heads);
  args.num_kv_heads = static_cast<int>(rotation.shape.num_kv_heads);
  args.head_dim = static_cast<int>(rotation.shape.head_dim);
  args.qkv = in.const_data_ptr();
  args.qkv_stride = in.stride(0);
  args.q = out.q.mutable_data_ptr();
  args.k = out.k.mutable_data_ptr();
  args.cos = rotation.angles.cos.const_data_ptr<float>();
  args.sin = rotation.angles.sin.const_data_ptr<float>();
  args.q_norm = DataOrNull(q_weight);
  args.k_norm = DataOrNull(k_weight);
  if (rotation.norm.has_value()) args.eps = static_cast<float>(rotation.norm->norm.eps);
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
}

// Heads from column `column` of the projection on.
void TransformHeads(const at::Tensor& in, const HeadRotation& rotation, const NormTensors& norm,
                    const at::Tensor& scale, int64_t column, at::Tensor& out) {
  const at::Tensor weight = ContiguousOrUndefined(norm.weight);
  const at::Tensor bias = ContiguousOrUndefined(norm.bias);
  cuda::TransformHeads args;
  args.type = CudaElementOf(in);
  args.rows = in.size(0);
  args.num_heads = static_cast<int>(out.size(1));
  args.head_dim = static_cast<int>(out.size(2));
  args.in = static_cast<const char*>(in.const_data_ptr()) + column * in.element_size();
  args.in_stride = in.stride(0);
  args.out = out.mutable_data_ptr();
  if (rotation.angles.cos.defined()) {
    args.cos = rotation.angles.cos.const_data_ptr<float>();
    args.sin = rotation.angles.sin.const_data_ptr<float>();
    args.rotary_dim = static_cast<int>(2 * rotation.angles.cos.size(1));
    args.interleaved = rotation.angles.interleaved;
  }
  if (rotation.norm.has_value()) {
    const QkNormSpec& spec = *rotation.norm;
    using Norm = cuda::TransformHeads::Norm;
    args.norm = spec.norm.kind == NormKind::kRms ? Norm::kRms : Norm::kLayer;
    args.after_rotation = spec.after_rotation;
    args.all_heads = spec.over == QkNormSpec::Over::kAllHeads;
    args.own_weights = spec.over == QkNormSpec::Over::kEachHead;
    args.unit_offset = spec.norm.unit_offset;
    args.eps = static_cast<float>(spec.norm.eps);
    args.weight = DataOrNull(weight);
    args.bias = DataOrNull(bias);
  }
  if (scale.defined()) args.row_scale = scale.const_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
}

}  // namespace

Qkv RotateQkv(const at::Tensor& qkv, const HeadRotation& rotation) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const at::Tensor in = qkv.contiguous();
  const QkvShape& shape = rotation.shape;
  const int64_t rows = in.size(0);
  Qkv out;
  out.q = at::empty({rows, shape.num_heads, shape.head_dim}, in.options());
  out.k = at::empty({rows, shape.num_kv_heads, shape.head_dim}, in.options());
  const int64_t k_column = shape.num_heads * shape.head_dim;
  const int64_t v_column = k_column + shape.num_kv_heads * shape.head_dim;
  out.v =
      in.narrow(1, v_column, shape.v_size()).unflatten(1, {shape.num_kv_heads, shape.value_dim()});
  if (rotation.IsPlain()) {
    RotatePlainly(in, rotation, out);
  } else {
    TransformHeads(in, rotation, rotation.q_norm, rotation.query_scale, 0, out.q);
    if (shape.num_kv_heads > 0) TransformHeads(in, rotation, rotation.k_norm, {}, k_column, out.k);
  }
  return out;
}

bool HasRotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies) {
  return positions.is_cuda() && positions.scalar_type() == at::kLong &&
         inverse_frequencies.is_cpu() && inverse_frequencies.scalar_type() == at::kFloat &&
         inverse_frequencies.numel() <= cuda::kMaxFrequencies;
}

RotaryAngles RotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies,
                         double factor) {
  const c10::cuda::CUDAGuard guard(positions.device());
  const at::Tensor places = positions.contiguous();
  const at::Tensor frequencies = inverse_frequencies.contiguous();
  const int64_t size = frequencies.numel();
  const auto options = at::TensorOptions(at::kFloat).device(places.device());
  RotaryAngles angles{at::empty({places.numel(), size}, options),
                      at::empty({places.numel(), size}, options)};
  cuda::RotaryTable args;
  args.rows = places.numel();
  args.size = static_cast<int>(size);
  args.positions = places.const_data_ptr<int64_t>();
  std::fill_n(std::copy_n(frequencies.const_data_ptr<float>(), size, args.frequencies),
              cuda::kMaxFrequencies - size, 0.0f);
  args.factor = static_cast<float>(factor);
  args.cos = angles.cos.mutable_data_ptr<float>();
  args.sin = angles.sin.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(places.device())));
  return angles;
}

bool ProductsTake(std::initializer_list<at::Tensor> tensors) {
  return CurrentNumerics() == Numerics::kExact && KernelsTake(tensors);
}

void RowProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::RowProduct args;
  args.out_size = weight.size(0);
  args.weight = weight.const_data_ptr();
  LaunchRowProduct(x, bias, out, args);
}

namespace {

cuda::FewRowsProduct FewRowsProductOf(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& bias) {
  cuda::FewRowsProduct args;
  args.rows = x.size(0);
  args.in = x.size(1);
  args.out_size = weight.size(0);
  args.x = x.const_data_ptr();
  args.weight = weight.const_data_ptr();
  args.bias = DataOrNull(bias);
  return args;
}

}  // namespace

bool FewRowsProductTakes(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  // Passes of the trainer have all products by ATen, whether or not a graph is recorded: they are
  // recomputed with the same bits.
  if (!c10::InferenceMode::is_enabled() || CurrentNumerics() == Numerics::kExact) return false;
  if (x.dim() != 2 || x.size(0) > cuda::kMostFewRows || x.scalar_type() != at::kBFloat16) {
    return false;
  }
  if (!KernelsTake({x, weight, bias}) || !x.is_contiguous() || !weight.is_contiguous() ||
      (bias.defined() && !bias.is_contiguous())) {
    return false;
  }
  return cuda::Takes(FewRowsProductOf(x, weight, bias));
}

at::Tensor FewRowsProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                          at::ScalarType type) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor out = at::empty({x.size(0), weight.size(0)}, x.options().dtype(type));
  cuda::FewRowsProduct args = FewRowsProductOf(x, weight, bias);
  args.out_type = CudaElementOf(out);
  args.out = out.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(x.device())));
  return out;
}

bool LogitKernelsTake(const at::Tensor& logits) {
  return logits.is_cuda() && logits.scalar_type() == at::kFloat;
}

void RowLogProbs(const at::Tensor& logits, const at::Tensor& targets,
                 const at::Tensor& temperatures, at::Tensor& log_probs, at::Tensor& entropy,
                 at::Tensor& log_sum_exp) {
  const c10::cuda::CUDAGuard guard(logits.device());
  cuda::RowLogProbs args;
  args.rows = logits.size(0);
  args.vocab = logits.size(1);
  args.logits = logits.const_data_ptr<float>();
  args.targets = targets.const_data_ptr<int64_t>();
  args.temperatures = temperatures.const_data_ptr<float>();
  args.log_probs = log_probs.mutable_data_ptr<float>();
  args.entropy = entropy.mutable_data_ptr<float>();
  args.log_sum_exp = log_sum_exp.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(logits.device())));
}

void RowLogProbsBackward(const at::Tensor& logits, double scale, double softcap,
                         const at::Tensor& targets, const at::Tensor& temperatures,
                         const at::Tensor& entropy, const at::Tensor& log_sum_exp,
                         const at::Tensor& grad_log_probs, const at::Tensor& grad_entropy,
                         at::Tensor& grad) {
  const c10::cuda::CUDAGuard guard(logits.device());
  cuda::RowLogProbsBackward args;
  args.rows = logits.size(0);
  args.vocab = logits.size(1);
  args.type = CudaElementOf(grad);
  args.logits = logits.const_data_ptr<float>();
  args.grad = grad.mutable_data_ptr();
  args.scale = static_cast<float>(scale);
  args.softcap = static_cast<float>(softcap);
  args.targets = targets.const_data_ptr<int64_t>();
  args.temperatures = temperatures.const_data_ptr<float>();
  args.entropy = entropy.const_data_ptr<float>();
  args.log_sum_exp = log_sum_exp.const_data_ptr<float>();
  args.grad_log_probs = grad_log_probs.const_data_ptr<float>();
  args.grad_entropy = grad_entropy.const_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(logits.device())));
}

}  // namespace tandem::model::device
