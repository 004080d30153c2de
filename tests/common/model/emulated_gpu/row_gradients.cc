// The kernels of row_gradients.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/row_gradients.cu"
