// What the usage examples in tools/tandem/gpu_check/kernels leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_KERNELS_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_KERNELS_H_

#include "common/model/norm.h"

namespace tandem::gpu_check::comparison_example {
extern at::Tensor x;
extern model::Norm norm;
extern model::Norm wide;  // of float64 tensors
}  // namespace tandem::gpu_check::comparison_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_TOOLS_TANDEM_GPU_CHECK_KERNELS_H_
