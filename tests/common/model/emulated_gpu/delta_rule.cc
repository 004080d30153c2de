// The kernels of delta_rule.h on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/delta_backward.cu"
#include "common/model/kernels/cuda/delta_convolution_backward.cu"
#include "common/model/kernels/cuda/delta_forward.cu"
#include "common/model/kernels/cuda/delta_inputs.cu"
