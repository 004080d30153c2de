#include "common/model/cuda_delta_forward.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include "common/model/cuda_tensor.h"
#include "common/model/delta_sizes.h"
#include "common/model/kernels/delta_rule.h"

namespace tandem::model::device {

static_assert(cuda::kMaxDeltaDim == kMaxDeltaHeadDimOnGpu);
static_assert(cuda::kDeltaChunk == kDeltaChunkOnGpu);
static_assert(cuda::kDeltaStatePadding == kernels::kDeltaPadding);
static_assert(cuda::kDeltaKeyEps == kernels::kDeltaNormEps);

cuda::DeltaShape CudaDeltaShapeOf(const DeltaSpec& spec, const DeltaTensors& tensors) {
  cuda::DeltaShape shape;
  shape.type = CudaElementOf(tensors.projected);
  shape.num_key_heads = static_cast<int>(spec.num_key_heads);
  shape.num_value_heads = static_cast<int>(spec.num_value_heads);
  shape.key_dim = static_cast<int>(spec.key_dim);
  shape.value_dim = static_cast<int>(spec.value_dim);
  shape.kernel_size = static_cast<int>(spec.kernel_size);
  shape.norm_eps = static_cast<float>(spec.norm_eps);
  shape.projected = tensors.projected.const_data_ptr();
  shape.row_stride = spec.projected_size();
  shape.convolution = tensors.convolution.const_data_ptr();
  shape.a_log = tensors.a_log.const_data_ptr();
  shape.dt_bias = tensors.dt_bias.const_data_ptr();
  shape.norm = tensors.norm.const_data_ptr();
  return shape;
}

cuda::DeltaBatch CudaDeltaBatchOf(const DeltaPlaces& places) {
  cuda::DeltaBatch batch;
  batch.num_rows = places.num_rows;
  batch.num_sequences = places.num_sequences;
  batch.row_sequence = places.ints.const_data_ptr<int32_t>();
  batch.row_starts = batch.row_sequence + places.num_rows;
  return batch;
}

at::Tensor WorkingFloats(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat).requires_grad(false));
}

at::Tensor WorkingZeros(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::zeros(sizes, like.options().dtype(at::kFloat).requires_grad(false));
}

DeltaWorkingInputs::DeltaWorkingInputs(const cuda::DeltaShape& shape, int64_t places,
                                       const at::Tensor& like, bool zero) {
  const auto make = [&](int64_t size) {
    return zero ? WorkingZeros({places, size}, like) : WorkingFloats({places, size}, like);
  };
  q = make(shape.key_size());
  k = make(shape.key_size());
  v = make(shape.value_size());
  beta = make(shape.num_value_heads);
  decay = make(shape.num_value_heads);
}

cuda::DeltaInputs DeltaWorkingInputs::pointers() const {
  return {q.mutable_data_ptr<float>(), k.mutable_data_ptr<float>(), v.mutable_data_ptr<float>(),
          beta.mutable_data_ptr<float>(), decay.mutable_data_ptr<float>()};
}

at::Tensor DeltaForwardOf(const DeltaSpec& spec, const DeltaTensors& in,
                          const cuda::DeltaBatch& batch) {
  const DeltaTensors tensors{in.projected.contiguous(), in.convolution.contiguous(),
                             in.a_log.contiguous(), in.dt_bias.contiguous(), in.norm.contiguous()};
  const c10::cuda::CUDAGuard guard(tensors.projected.device());
  cudaStream_t const stream = CurrentStream(tensors.projected.device());
  const cuda::DeltaShape shape = CudaDeltaShapeOf(spec, tensors);
  const DeltaWorkingInputs inputs(shape, batch.num_rows, tensors.projected, /*zero=*/false);
  cuda::DeltaConvolve convolve{shape, batch, inputs.pointers()};
  C10_CUDA_CHECK(cuda::Launch(convolve, stream));
  const at::Tensor results = WorkingFloats({batch.num_rows, shape.value_size()}, tensors.projected);
  cuda::DeltaAdvance advance{shape, batch, inputs.pointers()};
  advance.num_heads = shape.num_value_heads;
  advance.out = results.mutable_data_ptr<float>();
  C10_CUDA_CHECK(cuda::Launch(advance, stream));
  at::Tensor out = at::empty({batch.num_rows, shape.value_size()},
                             tensors.projected.options().requires_grad(false));
  cuda::DeltaOutput output{shape, batch};
  output.in = advance.out;
  output.out = out.mutable_data_ptr();
  C10_CUDA_CHECK(cuda::Launch(output, stream));
  return out;
}

}  // namespace tandem::model::device
