// Products x weight^T on a CUDA device, in which a row of the result depends only on that row of x
// and the weight, bit for bit, whatever shares the batch: all blocks have one tile shape, and an
// element is a sum over parts of k that are cut at the same places for any number of rows. Groups of
// consecutive rows may have a weight each (grouped_linear.h). Queues on `stream`, whose device must be
// current; allocates nothing and keeps no address, so that launches can be captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

// Multiplies bfloat16 on tensor cores if the device supports it, float32 by fused multiply-adds;
// accumulates both in float32.
struct RowProduct {
  Element type = Element::kFloat32;      // of x, weight and bias
  Element out_type = Element::kFloat32;  // `type`, or float32
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out_size = 0;
  const void* x = nullptr;       // [rows, in]
  const void* weight = nullptr;  // [out_size, in]
  const void* bias = nullptr;    // [out_size], or null; added before the result is rounded
  void* out = nullptr;           // [rows, out_size]
  float* partial = nullptr;      // PartialFloats() elements

  // If not null, on the device, [groups + 1]: the rows [first[g], first[g + 1]) have weight g and bias g,
  // which lie weight_stride and bias_stride elements behind those before them. Of rows that are in no
  // group the result is left as it is.
  const int64_t* first = nullptr;
  int64_t groups = 0;
  int64_t weight_stride = 0;
  int64_t bias_stride = 0;
};

// Floats that a launch needs in `partial`; 0: none. A result with few tiles has too few blocks to
// fill a device, so the parts of k then become separate blocks, whose sums are added afterwards in
// order: the same result.
int64_t PartialFloats(const RowProduct& args);

cudaError_t Launch(const RowProduct& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_
