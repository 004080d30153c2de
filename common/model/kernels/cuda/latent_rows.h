// The parts of absorbed heads (absorbed_heads.h) that are no products, on a CUDA device.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_LATENT_ROWS_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_LATENT_ROWS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

// Rotates the last rope_dim elements of each head of q into the last ones of absorbed_q, and makes of
// each row's latent and rotated shared part what the cache holds. Tensors lie row by row.
struct LatentRows {
  Element type = Element::kFloat32;
  int64_t rows = 0;
  int num_heads = 0;
  int nope_dim = 0;
  int rope_dim = 0;
  int kv_rank = 0;
  const void* q = nullptr;       // [rows, num_heads, nope_dim + rope_dim]
  const void* latent = nullptr;  // [rows, kv_rank]
  const void* shared = nullptr;  // [rows, rope_dim]
  // Of the pairs that rotate, [rows, half]; the elements behind them are copied.
  int half = 0;
  const float* cos = nullptr;
  const float* sin = nullptr;
  bool interleaved = false;    // pairs lie side by side, not half a part from one another
  void* absorbed_q = nullptr;  // [rows, num_heads, kv_rank + rope_dim]
  void* latents = nullptr;     // [rows, kv_rank + rope_dim]
};

// Queues on `stream`, whose device must be current. float32 inside.
cudaError_t Launch(const LatentRows& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_LATENT_ROWS_H_
