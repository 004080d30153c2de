// Implements device_row_ops.h for builds with CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>

#include "common/model/cuda_tensor.h"
#include "common/model/device_row_ops.h"
#include "common/model/kernels/cuda/row_kernels.h"
#include "common/model/kernels/cuda/row_product.h"
#include "common/model/numerics.h"

namespace tandem::model::device {
namespace {

const void* PointerOrNull(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

// Whether the kernels replace ATen for all passes on this thread, with and without a graph.
bool InPlaceOfAten() {
  return c10::InferenceMode::is_enabled() || CurrentNumerics() == Numerics::kExact;
}

at::Tensor ContiguousIfDefined(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

}  // namespace

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
  if (first == nullptr || !InPlaceOfAten()) return false;
  return first->scalar_type() == at::kFloat || first->scalar_type() == at::kBFloat16;
}

ResidualNorm AddRmsNorm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& weight,
                        double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  const at::Tensor in = x.contiguous();
  const at::Tensor added = ContiguousIfDefined(delta);
  const at::Tensor scale = weight.contiguous();
  ResidualNorm result{added.defined() ? at::empty_like(in) : in, at::empty_like(in)};
  cuda::RmsNorm args;
  args.type = CudaElementOf(in);
  args.size = in.size(-1);
  args.rows = in.numel() / args.size;
  args.eps = static_cast<float>(eps);
  args.x = in.const_data_ptr();
  args.delta = PointerOrNull(added);
  args.weight = scale.const_data_ptr();
  args.sum = added.defined() ? result.residual.mutable_data_ptr() : nullptr;
  args.out = result.normed.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return result;
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const c10::cuda::CUDAGuard guard(gate_up.device());
  const at::Tensor in = gate_up.contiguous();
  cuda::SwiGlu args;
  args.type = CudaElementOf(in);
  args.rows = in.size(0);
  args.size = in.size(-1) / 2;
  at::Tensor out = at::empty({args.rows, args.size}, in.options());
  args.gate_up = in.const_data_ptr();
  args.out = out.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return out;
}

Qkv RotateQkv(const at::Tensor& qkv, const Rotary& rotary, const QkvShape& shape,
              const at::Tensor& q_norm, const at::Tensor& k_norm, double eps) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const at::Tensor in = qkv.contiguous();
  const at::Tensor q_weight = ContiguousIfDefined(q_norm);
  const at::Tensor k_weight = ContiguousIfDefined(k_norm);
  const int64_t rows = in.size(0);
  Qkv out;
  out.q = at::empty({rows, shape.num_heads, shape.head_dim}, in.options());
  out.k = at::empty({rows, shape.num_kv_heads, shape.head_dim}, in.options());
  const int64_t v_column = (shape.num_heads + shape.num_kv_heads) * shape.head_dim;
  out.v = in.narrow(1, v_column, shape.num_kv_heads * shape.head_dim)
              .unflatten(1, {shape.num_kv_heads, shape.head_dim});
  cuda::Rotate args;
  args.type = CudaElementOf(in);
  args.rows = rows;
  args.num_heads = static_cast<int>(shape.num_heads);
  args.num_kv_heads = static_cast<int>(shape.num_kv_heads);
  args.head_dim = static_cast<int>(shape.head_dim);
  args.qkv = in.const_data_ptr();
  args.qkv_stride = in.stride(0);
  args.q = out.q.mutable_data_ptr();
  args.k = out.k.mutable_data_ptr();
  args.cos = rotary.cos.const_data_ptr<float>();
  args.sin = rotary.sin.const_data_ptr<float>();
  args.q_norm = PointerOrNull(q_weight);
  args.k_norm = PointerOrNull(k_weight);
  args.eps = static_cast<float>(eps);
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(in.device())));
  return out;
}

bool HasRotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies) {
  return InPlaceOfAten() && positions.is_cuda() && positions.scalar_type() == at::kLong &&
         inverse_frequencies.is_cpu() && inverse_frequencies.scalar_type() == at::kFloat &&
         inverse_frequencies.numel() <= cuda::kMaxFrequencies;
}

Rotary RotaryTable(const at::Tensor& positions, const at::Tensor& inverse_frequencies) {
  const c10::cuda::CUDAGuard guard(positions.device());
  const at::Tensor places = positions.contiguous();
  const at::Tensor frequencies = inverse_frequencies.contiguous();
  const int64_t size = frequencies.numel();
  const auto options = at::TensorOptions(at::kFloat).device(places.device());
  Rotary rotary{at::empty({places.numel(), size}, options),
                at::empty({places.numel(), size}, options)};
  cuda::RotaryTable args;
  args.rows = places.numel();
  args.size = static_cast<int>(size);
  args.positions = places.const_data_ptr<int64_t>();
  std::fill_n(std::copy_n(frequencies.const_data_ptr<float>(), size, args.frequencies),
              cuda::kMaxFrequencies - size, 0.0f);
  args.cos = rotary.cos.mutable_data_ptr<float>();
  args.sin = rotary.sin.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(places.device())));
  return rotary;
}

bool ProductsTake(std::initializer_list<at::Tensor> tensors) {
  return CurrentNumerics() == Numerics::kExact && KernelsTake(tensors);
}

void RowProduct(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(x.device());
  cuda::RowProduct args;
  args.type = CudaElementOf(x);
  args.out_type = CudaElementOf(out);
  args.rows = x.size(0);
  args.in = x.size(1);
  args.out_size = weight.size(0);
  args.x = x.const_data_ptr();
  args.weight = weight.const_data_ptr();
  args.bias = PointerOrNull(bias);
  args.out = out.mutable_data_ptr();
  at::Tensor partial;
  if (const int64_t floats = cuda::PartialFloats(args); floats > 0) {
    partial = at::empty({floats}, x.options().dtype(at::kFloat).requires_grad(false));
    args.partial = partial.mutable_data_ptr<float>();
  }
  C10_CUDA_CHECK(cuda::Launch(args, CurrentStream(x.device())));
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

}  // namespace tandem::model::device
