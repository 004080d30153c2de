// The kernels of few_rows_product.cu on a CPU.
#include "tests/support/cuda_emulation.h"
// After it.
#include "common/model/kernels/cuda/few_rows_product.cu"
