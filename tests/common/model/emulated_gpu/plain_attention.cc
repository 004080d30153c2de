// The kernel of plain_attention.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/plain_attention.cu"
