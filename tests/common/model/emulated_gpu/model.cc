// The operations of a layer, compiled so that tensors of the CPU count as a GPU's. With the kernels
// beside this file they take the place of those of the model's library: a model then goes through
// the kernels of a GPU, on a CPU.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "common/model/cpu_dispatch.h"
#include "common/model/cuda_tensor.h"
#include "common/model/kernel_function.h"
#include "common/model/sequence_parallel_attention.h"
#include "common/model/tensor_collectives.h"
#include "common/model/transformer.h"

namespace c10::cuda {
struct EmulatedGuard {
  explicit EmulatedGuard(at::Device) {}
};
}  // namespace c10::cuda

#define is_cuda() defined()
#define CUDAGuard EmulatedGuard
#define CurrentStream(device) nullptr
#undef C10_CUDA_CHECK
#define C10_CUDA_CHECK(call) TORCH_CHECK((call) == cudaSuccess, #call)
// After them.
#include "common/model/activation.cc"
#include "common/model/cuda_delta_attention.cc"
#include "common/model/cuda_delta_backward.cc"
#include "common/model/cuda_delta_forward.cc"
#include "common/model/cuda_experts.cc"
#include "common/model/cuda_packed_attention.cc"
#include "common/model/cuda_row_gradients.cc"
#include "common/model/cuda_row_ops.cc"
#include "common/model/expert_rows.cc"
#include "common/model/grouped_linear.cc"
#include "common/model/image_attention.cc"
#include "common/model/linear.cc"
#include "common/model/norm.cc"
#include "common/model/packed_attention.cc"
#include "common/model/rotary.cc"
#include "common/model/router.cc"
// Its kernels of a CPU come before those of a GPU.
#define is_cpu() is_meta()
#include "common/model/head.cc"
