// The kernels of latent_attention.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/latent_attention.cu"
