// The kernels of weighted_sum.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/weighted_sum.cu"
