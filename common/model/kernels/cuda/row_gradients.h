// Launches the backward passes of the per-token kernels (row_kernels.h) on a CUDA device. Each call
// queues on `stream`, whose device must be current, and returns the launch's error code. Rows are
// contiguous unless a stride, in elements, is given. Results do not depend on the device: sums over
// rows are added up by a fixed number of blocks, in a fixed order.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_GRADIENTS_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_GRADIENTS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"
#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/norm_spec.h"

namespace tandem::model::cuda {

struct NormBackward {
  Element type = Element::kFloat32;
  NormSpec spec;
  int64_t rows = 0;
  int64_t size = 0;
  const void* x = nullptr;         // [rows, size]: what was normalised
  const void* weight = nullptr;    // [size]; null if the norm has none
  const float* inverse = nullptr;  // [rows], of the forward pass
  const float* mean = nullptr;     // [rows], of a LayerNorm
  const void* grad_out = nullptr;  // [rows, size]
  const void* grad_sum = nullptr;  // [rows, size]: added to grad_x, or null
  void* grad_x = nullptr;
  // Sums over the rows of a block, [SumBlocks(*this), size] each, which the caller adds up; or null.
  float* weight_sums = nullptr;
  float* bias_sums = nullptr;
};
int64_t SumBlocks(const NormBackward& args);
cudaError_t Launch(const NormBackward& args, cudaStream_t stream);

// Not of xIELU.
struct ActivateBackward {
  Element type = Element::kFloat32;
  Activation activation = Activation::kSilu;
  bool gated = true;
  int64_t rows = 0;
  int64_t size = 0;
  const void* in = nullptr;        // the forward's
  const void* grad_out = nullptr;  // [rows, size]
  void* grad_in = nullptr;         // like `in`
};
cudaError_t Launch(const ActivateBackward& args, cudaStream_t stream);

// The gradient of the fused projection from those of q, k and v.
inline constexpr int kMaxNormedHeadDim = 512;
struct RotateBackward {
  Element type = Element::kFloat32;
  int64_t rows = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;
  const void* grad_q = nullptr;  // [rows, num_heads, head_dim]; null: zeros, like the next two
  const void* grad_k = nullptr;  // [rows, num_kv_heads, head_dim]
  const void* grad_v = nullptr;  // [rows, num_kv_heads, v_head_dim]
  void* grad_qkv = nullptr;      // [rows, the heads of q, k and v]
  const float* cos = nullptr;    // [rows, head_dim / 2]
  const float* sin = nullptr;
  // Of heads that were normalised, whose head_dim is at most kMaxNormedHeadDim; else null.
  const void* q_norm = nullptr;  // [head_dim]
  const void* k_norm = nullptr;
  const void* qkv = nullptr;  // the forward's
  int64_t qkv_stride = 0;
  float eps = 0;
  // The gradients of q_norm and k_norm over the rows of a block, [SumBlocks(*this), 2, head_dim],
  // which the caller adds up.
  float* norm_sums = nullptr;
};
int64_t SumBlocks(const RotateBackward& args);
cudaError_t Launch(const RotateBackward& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_GRADIENTS_H_
