// Connects CUDA tensors to the CUDA kernels. Only for sources of a build with TANDEM_CUDA.
#ifndef TANDEM_COMMON_MODEL_CUDA_TENSOR_H_
#define TANDEM_COMMON_MODEL_CUDA_TENSOR_H_

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model {

// Returns the calling thread's current stream of the device.
inline cudaStream_t CurrentStream(at::Device device) {
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
}

// float32 or bfloat16 only.
inline cuda::Element CudaElementOf(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? cuda::Element::kFloat32 : cuda::Element::kBFloat16;
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CUDA_TENSOR_H_
