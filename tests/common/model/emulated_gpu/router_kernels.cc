// The kernels of router_kernels.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/router_kernels.cu"
