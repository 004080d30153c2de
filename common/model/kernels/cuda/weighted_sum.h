// Launches weighted sums of rows on a CUDA device, forward and backward: kernels/expert_rows.h has the
// operations and their arguments. A row's bits depend only on its terms. Each call queues on
// `stream`, whose device must be current, and returns the launch's error code. The calls allocate
// nothing and keep no address, so that launches can be captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_WEIGHTED_SUM_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_WEIGHTED_SUM_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

struct WeightedSum {
  Element type = Element::kFloat32;
  int64_t sums = 0;
  int64_t size = 0;   // of a row
  int64_t terms = 0;  // of each sum
  const void* rows = nullptr;
  const int64_t* places = nullptr;  // [sums, terms], or null: row i is the only term of sum i
  const float* weights = nullptr;   // likewise; null: all 1
  void* out = nullptr;              // [sums, size]
};
cudaError_t Launch(const WeightedSum& args, cudaStream_t stream);

// The gradients of rows and weights. Each row is a term of one sum.
struct WeightedSumBackward {
  Element type = Element::kFloat32;
  int64_t sums = 0;
  int64_t size = 0;
  int64_t terms = 0;
  const void* rows = nullptr;
  const int64_t* places = nullptr;
  const float* weights = nullptr;
  const void* grad_out = nullptr;
  void* grad_rows = nullptr;
  float* grad_weights = nullptr;  // [sums, terms]
};
cudaError_t Launch(const WeightedSumBackward& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_WEIGHTED_SUM_H_
