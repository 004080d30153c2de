// Launches the per-token kernels on a CUDA device: the forward of kernels/row_ops.h. Each call
// queues on `stream`, whose device must be current, and returns the launch's error code. Rows are
// contiguous unless a stride, in elements, is given. The calls allocate nothing and keep no
// address, so that launches can be captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_KERNELS_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"
#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/norm_spec.h"

namespace tandem::model::cuda {

struct Norm {
  Element type = Element::kFloat32;
  NormSpec spec;
  int64_t rows = 0;
  int64_t size = 0;
  const void* x = nullptr;
  const void* delta = nullptr;   // added to x first, or null
  const void* weight = nullptr;  // [size]; null if the norm has none
  const void* bias = nullptr;    // likewise
  void* sum = nullptr;           // x + delta, if there is a delta
  void* out = nullptr;
  // For the backward pass, [rows] each, or null: 1 / sqrt(mean square or variance + eps), and the
  // mean of a LayerNorm.
  float* inverse = nullptr;
  float* mean = nullptr;
};
cudaError_t Launch(const Norm& args, cudaStream_t stream);

// activation(gate) * up, or activation(in). in: [rows, 2 size], gate first; [rows, size] without a
// gate. out: [rows, size].
struct Activate {
  Element type = Element::kFloat32;
  Activation activation = Activation::kSilu;
  bool gated = true;
  int64_t rows = 0;
  int64_t size = 0;
  const void* in = nullptr;
  void* out = nullptr;
  const void* alphas = nullptr;  // [2], of xIELU
};
cudaError_t Launch(const Activate& args, cudaStream_t stream);

// The rotary embedding's cosines and sines. The frequencies are launch arguments.
inline constexpr int kMaxFrequencies = 256;
struct RotaryTable {
  int64_t rows = 0;
  int size = 0;  // frequencies, rotary_dim / 2
  const int64_t* positions = nullptr;
  float frequencies[kMaxFrequencies];
  float factor = 1.0f;   // of cosines and sines
  float* cos = nullptr;  // [rows, size]
  float* sin = nullptr;
};
cudaError_t Launch(const RotaryTable& args, cudaStream_t stream);

// Extracts the heads of q and k from the fused projection: normalises them if there are weights,
// then rotates.
struct Rotate {
  Element type = Element::kFloat32;
  int64_t rows = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  const void* qkv = nullptr;  // [rows, (num_heads + 2 num_kv_heads) * head_dim]
  int64_t qkv_stride = 0;
  void* q = nullptr;           // [rows, num_heads, head_dim]
  void* k = nullptr;           // [rows, num_kv_heads, head_dim]
  const float* cos = nullptr;  // [rows, head_dim / 2]
  const float* sin = nullptr;
  const void* q_norm = nullptr;  // [head_dim], or null
  const void* k_norm = nullptr;
  float eps = 0;
};
cudaError_t Launch(const Rotate& args, cudaStream_t stream);

// Heads of q or k with every kind of norm and rotation (kernels/head_ops.h).
struct TransformHeads {
  enum class Norm { kNone, kRms, kLayer };
  Element type = Element::kFloat32;
  int64_t rows = 0;
  int num_heads = 0;
  int head_dim = 0;
  const void* in = nullptr;  // [rows, num_heads * head_dim]
  int64_t in_stride = 0;
  void* out = nullptr;         // [rows, num_heads, head_dim]
  const float* cos = nullptr;  // [rows, rotary_dim / 2]; null: no rotation
  const float* sin = nullptr;
  int rotary_dim = 0;
  bool interleaved = false;
  Norm norm = Norm::kNone;
  bool after_rotation = false;
  bool all_heads = false;
  bool own_weights = false;
  bool unit_offset = false;
  float eps = 0;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const float* row_scale = nullptr;  // [rows], or null
};
cudaError_t Launch(const TransformHeads& args, cudaStream_t stream);

// Writes new keys and values into the paged cache, [blocks, num_kv_heads, block_size, head_dim]
// each.
struct WriteKv {
  Element type = Element::kFloat32;
  int64_t rows = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int v_head_dim = 0;  // 0: head_dim
  int block_size = 0;
  int64_t block_stride =
      0;  // elements from a block to the next, of keys and values; 0: side by side
  const void* k = nullptr;
  int64_t k_row_stride = 0;
  int64_t k_head_stride = 0;
  const void* v = nullptr;  // null: values are part of the keys
  int64_t v_row_stride = 0;
  int64_t v_head_stride = 0;
  const int32_t* slots = nullptr;  // [rows]: block * block_size + offset in the block
  void* keys = nullptr;
  void* values = nullptr;
};
cudaError_t Launch(const WriteKv& args, cudaStream_t stream);

// Log-probs of targets under logits / temperature, entropies and log-sum-exps; see
// kernels/log_probs.h.
struct RowLogProbs {
  int64_t rows = 0;
  int64_t vocab = 0;
  const float* logits = nullptr;        // [rows, vocab]
  const int64_t* targets = nullptr;     // [rows]; negative: its log-prob is not written
  const float* temperatures = nullptr;  // [rows]
  float* log_probs = nullptr;           // [rows], like the next two
  float* entropy = nullptr;
  float* log_sum_exp = nullptr;  // of logits / temperature
};
cudaError_t Launch(const RowLogProbs& args, cudaStream_t stream);

// The gradient of the head's products, like kernels::LogProbsBackward: one pass over the logits.
struct RowLogProbsBackward {
  int64_t rows = 0;
  int64_t vocab = 0;
  Element type = Element::kFloat32;  // of grad
  const float* logits = nullptr;     // [rows, vocab]
  void* grad = nullptr;              // [rows, vocab]; may be the logits in float32
  float scale = 1.0f;                // that products were multiplied with
  float softcap = 0.0f;              // 0: none
  const int64_t* targets = nullptr;  // [rows], like the rest; negative: not on this rank
  const float* temperatures = nullptr;
  const float* entropy = nullptr;
  const float* log_sum_exp = nullptr;  // of logits / temperature
  const float* grad_log_probs = nullptr;
  const float* grad_entropy = nullptr;
};
cudaError_t Launch(const RowLogProbsBackward& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ROW_KERNELS_H_
