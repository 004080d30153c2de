// Launches linear attention by the gated delta rule (layers/delta_spec.h) on a CUDA device, forward and
// backward: from a layer's projections to what its output projection reads. All launches queue on
// `stream`, whose device must be current, allocate nothing, and read the sequences on the device, so
// that those of a forward pass can be captured in a CUDA graph and replayed over another batch of the
// same shape.
//
// The recurrence goes token by token, in trainer and rollout alike, in one order of sums: a token's
// result depends on its sequence's earlier tokens and on nothing else, neither on how a prompt was cut
// into chunks nor on the batch. Arithmetic is float32; inputs and results are float32 or bfloat16.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/kernels/cuda/element.h"

namespace tandem::model::cuda {

// The largest key_dim and value_dim: a lane holds its elements of a head in registers.
inline constexpr int kMaxDeltaDim = 256;
// As kernels/delta_rule.h has them.
inline constexpr int kDeltaStatePadding = 16;
inline constexpr float kDeltaKeyEps = 1e-6f;
// Tokens between two states that the backward pass keeps. More would take less memory, and more work
// within a chunk, which grows with its square.
inline constexpr int kDeltaChunk = 64;
// Columns of a state in one block of the recurrence.
inline constexpr int kDeltaColumns = 32;

struct DeltaShape {
  Element type = Element::kFloat32;  // of all tensors
  int num_key_heads = 0;
  int num_value_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  int kernel_size = 0;
  float norm_eps = 0.0f;
  // Rows of q, k, v, z [heads, dim] each, then b and a [num_value_heads], row_stride elements apart.
  const void* projected = nullptr;
  int64_t row_stride = 0;
  // Contiguous.
  const void* convolution = nullptr;  // [channels, kernel_size], the oldest token's weight first
  const void* a_log = nullptr;        // [num_value_heads]
  const void* dt_bias = nullptr;      // [num_value_heads]
  const void* norm = nullptr;         // [value_dim]

  __host__ __device__ int group() const { return num_value_heads / num_key_heads; }
  __host__ __device__ int64_t key_size() const { return int64_t{num_key_heads} * key_dim; }
  __host__ __device__ int64_t value_size() const { return int64_t{num_value_heads} * value_dim; }
  __host__ __device__ int64_t channels() const { return 2 * key_size() + value_size(); }
  __host__ __device__ int padded_value_dim() const {
    return (value_dim + kDeltaStatePadding - 1) / kDeltaStatePadding * kDeltaStatePadding;
  }
};

// Sequences whose rows lie one after another in the batch, each with at least one. All arrays are on the
// device.
struct DeltaBatch {
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  const int32_t* row_sequence = nullptr;  // [rows]
  const int32_t* row_starts = nullptr;    // [sequences + 1]
  // Where a sequence's rows lie in the working memory; null: where they lie in the batch. The backward
  // pass has each sequence begin with a chunk of its own.
  const int32_t* place_starts = nullptr;  // [sequences + 1]
  // Which state a sequence continues from and leaves; negative: it begins, and leaves none. Null: so do
  // all.
  const int32_t* states = nullptr;        // [sequences]
  const int32_t* row_position = nullptr;  // [rows], with states: a sequence begins at position 0
  // State 0 of the layer, [num_value_heads, key_dim, padded_value_dim], and the last inputs of its
  // convolution, [kernel_size - 1, channels]; others follow at multiples of state_stride bytes.
  void* state = nullptr;
  void* tail = nullptr;
  int64_t state_stride = 0;
};

// Working memory, float32. A place is a row of a sequence (DeltaBatch::place_starts).
struct DeltaInputs {
  float* q = nullptr;      // [places, num_key_heads, key_dim], normed and scaled
  float* k = nullptr;      // likewise, normed
  float* v = nullptr;      // [places, num_value_heads, value_dim]
  float* beta = nullptr;   // [places, num_value_heads]
  float* decay = nullptr;  // likewise
};

// The convolution and what follows it up to the recurrence: writes `inputs`.
struct DeltaConvolve {
  DeltaShape shape;
  DeltaBatch batch;
  DeltaInputs inputs;
};
cudaError_t Launch(const DeltaConvolve& args, cudaStream_t stream);

// The recurrence over some of the value heads; then replaces the sequences' states and tails. With a
// tail, all heads at once.
struct DeltaAdvance {
  DeltaShape shape;
  DeltaBatch batch;
  DeltaInputs inputs;
  int first_head = 0;
  int num_heads = 0;
  float* out = nullptr;  // [places, num_value_heads, value_dim]: S^T q
  // For the backward pass, or null: v - S^T k, like `out`, and the state before each chunk, transposed,
  // [chunks, num_heads, value_dim, key_dim].
  float* error = nullptr;
  float* boundaries = nullptr;
};
cudaError_t Launch(const DeltaAdvance& args, cudaStream_t stream);

// The norm of the recurrence's results and their gate.
struct DeltaOutput {
  DeltaShape shape;
  DeltaBatch batch;
  const float* in = nullptr;  // [places, num_value_heads, value_dim]
  void* out = nullptr;        // [rows, num_value_heads, value_dim]
};
cudaError_t Launch(const DeltaOutput& args, cudaStream_t stream);

// Replaces the recurrence's results by their gradients.
struct DeltaOutputBackward {
  DeltaShape shape;
  DeltaBatch batch;
  float* values = nullptr;         // [places, num_value_heads, value_dim]: results, then gradients
  const void* grad_out = nullptr;  // [rows, num_value_heads, value_dim]
  void* grad_projected = nullptr;  // contiguous rows; those of z are written
  float* norm_sums = nullptr;  // [SumBlocks(), value_dim]: the gradient of the norm, of each block
};
int64_t SumBlocks(const DeltaOutputBackward& args);
cudaError_t Launch(const DeltaOutputBackward& args, cudaStream_t stream);

// Passes the gradient D of the state from a sequence's last token to its first. With the gradients g of
// a token's result, and D that of the state behind it:
//
//   D += q g^T,  du = D^T k,  D = a (D - k (beta du)^T)
struct DeltaReverse {
  DeltaShape shape;
  DeltaBatch batch;
  DeltaInputs inputs;
  int first_head = 0;
  int num_heads = 0;
  const float* grad_out = nullptr;    // [places, num_value_heads, value_dim]
  float* du = nullptr;                // likewise
  const float* boundaries = nullptr;  // DeltaAdvance's
  // D behind each chunk, of later chunks alone; like `boundaries`.
  float* grad_boundaries = nullptr;
  // The sum of its products with the state before the chunk, of each block's columns: [chunks, num_heads,
  // DeltaTiles()].
  float* products = nullptr;
};
__host__ __device__ inline int DeltaTiles(const DeltaShape& shape) {
  return (shape.value_dim + kDeltaColumns - 1) / kDeltaColumns;
}
cudaError_t Launch(const DeltaReverse& args, cudaStream_t stream);

// For tokens t and i of a chunk: the product of the decays behind i, up to t; zero where i is later.
struct DeltaRatios {
  int64_t num_chunks = 0;
  int num_value_heads = 0;
  int first_head = 0;
  int num_heads = 0;
  const float* decay = nullptr;  // [places, num_value_heads]
  float* ratios = nullptr;       // [chunks, num_heads, kDeltaChunk (t), kDeltaChunk (i)]
};
cudaError_t Launch(const DeltaRatios& args, cudaStream_t stream);

// The gradients of b and a, and of their parameters in each chunk.
struct DeltaGatesBackward {
  DeltaShape shape;
  DeltaBatch batch;
  DeltaInputs inputs;  // beta alone is read
  int first_head = 0;
  int num_heads = 0;
  int64_t num_chunks = 0;
  const int32_t* chunk_sequence = nullptr;  // [chunks]
  const float* error = nullptr;             // DeltaAdvance's
  const float* du = nullptr;                // DeltaReverse's
  const float* log_decay =
      nullptr;  // [chunks, num_heads, kDeltaChunk]: gradients of decays' logarithms
  void* grad_projected = nullptr;  // those of b and a are written
  float* a_log_sums = nullptr;     // [chunks, num_value_heads]
  float* dt_bias_sums = nullptr;   // likewise
};
cudaError_t Launch(const DeltaGatesBackward& args, cudaStream_t stream);

// From the gradients of q, k and v to those of the convolution's sums.
struct DeltaConvolveBackward {
  DeltaShape shape;
  DeltaBatch batch;
  DeltaInputs inputs;             // beta alone is read
  const float* grad_q = nullptr;  // [chunks, num_key_heads, kDeltaChunk, key_dim]: of normed heads
  const float* grad_k = nullptr;  // likewise
  const float* du = nullptr;      // DeltaReverse's: that of v, divided by beta
  float* grad_sums = nullptr;     // [rows, channels]
};
cudaError_t Launch(const DeltaConvolveBackward& args, cudaStream_t stream);

// From there to the projection and the weights.
struct DeltaWeightsBackward {
  DeltaShape shape;
  DeltaBatch batch;
  const float* grad_sums = nullptr;  // [rows, channels]
  void* grad_projected = nullptr;    // those of q, k and v are written
  float* weight_sums = nullptr;      // [WeightBlocks(), channels, kernel_size]
};
int64_t WeightBlocks(const DeltaWeightsBackward& args);
cudaError_t Launch(const DeltaWeightsBackward& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_DELTA_RULE_H_
