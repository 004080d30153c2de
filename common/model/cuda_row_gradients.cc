// Implements device_row_gradients.h for builds with CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "common/model/cuda_tensor.h"
#include "common/model/device_row_gradients.h"
#include "common/model/kernels/cuda/row_gradients.h"
#include "common/model/numerics.h"
#include "common/model/optional_tensor.h"

namespace tandem::model::device {
namespace {

bool InFastNumerics() { return CurrentNumerics() == Numerics::kFast; }

// float32, beside x.
at::Tensor EmptyFloats(at::IntArrayRef sizes, const at::Tensor& x) {
  return at::empty(sizes, x.options().dtype(at::kFloat).requires_grad(false));
}

}  // namespace

bool NormGradientsTake() { return InFastNumerics(); }

bool ActivationGradientsTake(const ActivationFunction& function) {
  return InFastNumerics() && !function.alphas.defined();
}

bool RotationGradientsTake(const HeadRotation& rotation) {
  return InFastNumerics() && rotation.IsPlain() &&
         (!rotation.norm.has_value() || rotation.shape.head_dim <= cuda::kMaxNormedHeadDim);
}

NormGradients NormBackward(const at::Tensor& x, const at::Tensor& moments, const at::Tensor& weight,
                           const NormSpec& spec, const at::Tensor& grad_out,
                           const at::Tensor& grad_sum, bool want_weight, bool want_bias) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor scale = ContiguousOrUndefined(weight);
  const at::Tensor grad = grad_out.contiguous();
  const at::Tensor extra = ContiguousOrUndefined(grad_sum);
  NormGradients gradients{at::empty_like(x), {}, {}};
  cuda::NormBackward args;
  args.type = CudaElementOf(x);
  args.spec = spec;
  args.size = x.size(-1);
  args.rows = x.numel() / args.size;
  args.x = x.const_data_ptr();
  args.weight = DataOrNull(scale);
  args.inverse = moments.const_data_ptr<float>();
  if (spec.kind == NormKind::kLayer) args.mean = args.inverse + args.rows;
  args.grad_out = grad.const_data_ptr();
  args.grad_sum = DataOrNull(extra);
  args.grad_x = gradients.x.mutable_data_ptr();
  // The weight's sums, then the bias's, of each block.
  at::Tensor sums;
  const int num_sums = (want_weight ? 1 : 0) + (want_bias ? 1 : 0);
  if (num_sums > 0) {
    sums = EmptyFloats({num_sums, cuda::SumBlocks(args), args.size}, x);
    if (want_weight) args.weight_sums = sums[0].mutable_data_ptr<float>();
    if (want_bias) args.bias_sums = sums[num_sums - 1].mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(x.device())));
  if (num_sums == 0) return gradients;
  const at::Tensor summed = sums.sum(1).to(x.scalar_type());
  if (want_weight) gradients.weight = summed[0];
  if (want_bias) gradients.bias = summed[num_sums - 1];
  return gradients;
}

at::Tensor ActivateBackward(const at::Tensor& in, const ActivationFunction& function,
                            const at::Tensor& grad_out) {
  const c10::cuda::CUDAGuard guard(in.device());
  const at::Tensor grad = grad_out.contiguous();
  at::Tensor grad_in = at::empty_like(in);
  cuda::ActivateBackward args;
  args.type = CudaElementOf(in);
  args.activation = function.activation;
  args.gated = function.gated;
  args.rows = in.size(0);
  args.size = in.size(-1) / (function.gated ? 2 : 1);
  args.in = in.const_data_ptr();
  args.grad_out = grad.const_data_ptr();
  args.grad_in = grad_in.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return grad_in;
}

RotationGradients RotateBackward(const at::Tensor& qkv, const HeadRotation& rotation,
                                 const Qkv& grads) {
  const at::Tensor& cos = rotation.angles.cos;
  const c10::cuda::CUDAGuard guard(cos.device());
  const QkvShape& shape = rotation.shape;
  const at::Tensor grad_q = ContiguousOrUndefined(grads.q);
  const at::Tensor grad_k = ContiguousOrUndefined(grads.k);
  const at::Tensor grad_v = ContiguousOrUndefined(grads.v);
  const at::Tensor q_norm = ContiguousOrUndefined(rotation.q_norm.weight);
  const at::Tensor k_norm = ContiguousOrUndefined(rotation.k_norm.weight);
  const at::Tensor& some = grad_q.defined() ? grad_q : grad_k.defined() ? grad_k : grad_v;
  cuda::RotateBackward args;
  args.type = CudaElementOf(some);
  args.rows = cos.size(0);
  args.num_heads = static_cast<int>(shape.num_heads);
  args.num_kv_heads = static_cast<int>(shape.num_kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  args.v_head_dim = static_cast<int>(shape.value_dim());
  args.grad_q = DataOrNull(grad_q);
  args.grad_k = DataOrNull(grad_k);
  args.grad_v = DataOrNull(grad_v);
  RotationGradients gradients;
  gradients.qkv = at::empty(
      {args.rows, (shape.num_heads + shape.num_kv_heads) * shape.head_dim + shape.v_size()},
      some.options().requires_grad(false));
  args.grad_qkv = gradients.qkv.mutable_data_ptr();
  args.cos = cos.const_data_ptr<float>();
  args.sin = rotation.angles.sin.const_data_ptr<float>();
  at::Tensor sums;
  if (rotation.norm.has_value()) {
    args.q_norm = q_norm.const_data_ptr();
    args.k_norm = k_norm.const_data_ptr();
    args.qkv = qkv.const_data_ptr();
    args.qkv_stride = qkv.stride(0);
    args.eps = static_cast<float>(rotation.norm->norm.eps);
    sums = EmptyFloats({cuda::SumBlocks(args), 2, shape.head_dim}, some);
    args.norm_sums = sums.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(cos.device())));
  if (sums.defined()) {
    const at::Tensor summed = sums.sum(0).to(some.scalar_type());
    gradients.q_norm = summed[0];
    gradients.k_norm = summed[1];
  }
  return gradients;
}

}  // namespace tandem::model::device
