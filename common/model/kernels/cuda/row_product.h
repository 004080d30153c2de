// Products x weight^T on a CUDA device in which a row of the result depends on that row of x and on
// the weight alone, bit for bit, whatever shares the batch: blocks have one tile shape, and an
// element is a sum over parts of k that are cut at the same places for any number of rows. Queues
// on `stream`, whose device is the current one; allocates nothing and keeps no address, so that
// launches can be captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

// bfloat16 is multiplied on tensor cores where the device has them for it, float32 by fused
// multiply-adds; both add up in float32.
struct RowProduct {
  Element type = Element::kFloat32;      // of x, weight and bias
  Element out_type = Element::kFloat32;  // `type`, or float32
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out_size = 0;
  const void* x = nullptr;       // [rows, in]
  const void* weight = nullptr;  // [out_size, in]
  const void* bias = nullptr;    // [out_size], or none; added before the result is rounded
  void* out = nullptr;           // [rows, out_size]
  float* partial = nullptr;      // PartialFloats() elements
};

// What a launch needs of `partial`; 0: nothing. A result of few tiles is too few blocks to fill a
// device, so the parts of k are then blocks of their own, which are added up afterwards, in their
// order: the same sum.
int64_t PartialFloats(const RowProduct& args);

cudaError_t Launch(const RowProduct& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_PRODUCT_H_
