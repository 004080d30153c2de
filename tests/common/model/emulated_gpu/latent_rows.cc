// The kernel of latent_rows.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/latent_rows.cu"
