// Products x weight^T of few rows on a CUDA device, as in decoding: every weight is read once, and
// the time is that of reading them. Queues on `stream`, whose device must be current; allocates
// nothing and keeps no address, so that launches can be captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_FEW_ROWS_PRODUCT_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_FEW_ROWS_PRODUCT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

// Every row reads as many bytes of x from the first cache as of the weight from memory: on an H100 a
// decode step of four rows took a fifth longer than one of one row.
inline constexpr int64_t kMostFewRows = 2;

// Multiplies bfloat16, sums in float32. A row of the result depends only on that row of x and on the
// weight, bit for bit.
struct FewRowsProduct {
  Element out_type = Element::kBFloat16;
  int64_t rows = 0;  // 1 to kMostFewRows
  int64_t in = 0;    // a multiple of 8
  int64_t out_size = 0;
  const void* x = nullptr;       // bfloat16 [rows, in], 16-byte aligned
  const void* weight = nullptr;  // bfloat16 [out_size, in], 16-byte aligned
  const void* bias = nullptr;    // bfloat16 [out_size], or null; added before the result is rounded
  void* out = nullptr;           // [rows, out_size]
};

// Whether sizes and addresses are as above.
bool Takes(const FewRowsProduct& args);

cudaError_t Launch(const FewRowsProduct& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_FEW_ROWS_PRODUCT_H_
