// Linear attention by the gated delta rule (layers/delta_spec.h) on the CPU, forward and backward:
// from a layer's projections to what its output projection reads.
//
// Token by token, in trainer and rollout alike: a token's result depends on its sequence's earlier
// tokens and on nothing else, neither on how a prompt was cut into chunks nor on the batch. Chunks in
// the WY form (2406.06484), which a GPU needs for its matrix units, save a CPU nothing: some columns of
// a head's state stay in the first-level cache while tokens pass, every load serves several
// multiply-adds, and each column is a chain of its own, so that registers need no sum over lanes.
//
// Arithmetic is float32; inputs and results are float32 or bfloat16.
#ifndef TANDEM_COMMON_MODEL_KERNELS_DELTA_RULE_H_
#define TANDEM_COMMON_MODEL_KERNELS_DELTA_RULE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/kernels/element.h"
#include "common/model/kernels/gemm.h"
#include "common/model/kernels/round_up.h"

namespace tandem::model::kernels {

// Rows of a head's state are padded with zeros to a multiple of this, which fills registers.
inline constexpr int64_t kDeltaPadding = 16;
// Added to sums of squares before their root divides q and k.
inline constexpr float kDeltaNormEps = 1e-6f;

struct DeltaShape {
  Element type = Element::kFloat32;  // of all tensors
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t kernel_size = 0;
  float norm_eps = 0.0f;
  // Rows of q, k, v, z [heads, dim] each, then b and a [num_value_heads], row_stride elements apart.
  const void* projected = nullptr;
  int64_t row_stride = 0;
  // Contiguous.
  const void* convolution = nullptr;  // [channels, kernel_size], the oldest token's weight first
  const void* a_log = nullptr;        // [num_value_heads]
  const void* dt_bias = nullptr;      // [num_value_heads]
  const void* norm = nullptr;         // [value_dim]

  int64_t group() const { return num_value_heads / num_key_heads; }
  int64_t key_size() const { return num_key_heads * key_dim; }
  int64_t value_size() const { return num_value_heads * value_dim; }
  int64_t channels() const { return 2 * key_size() + value_size(); }
  int64_t padded_value_dim() const { return RoundUp(value_dim, kDeltaPadding); }
  // Floats of a sequence's state: [num_value_heads, key_dim, padded_value_dim()].
  int64_t state_floats() const { return num_value_heads * key_dim * padded_value_dim(); }
  // Elements of the convolution's inputs that a sequence keeps: [kernel_size - 1, channels()], the
  // oldest token first.
  int64_t tail_elements() const { return (kernel_size - 1) * channels(); }
};

// Consecutive rows of one sequence, in order.
struct DeltaSequence {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  bool begins = true;  // no token came before: state and tail are not read
  // What the earlier tokens left, replaced by what these leave. Null: nothing is kept, and `begins`.
  float* state = nullptr;
  void* tail = nullptr;
};

// out: rows [num_value_heads, value_dim], contiguous. Runs at most num_threads tasks at once.
void DeltaForward(const DeltaShape& shape, absl::Span<const DeltaSequence> sequences, void* out,
                  int num_threads, const ParallelFor& parallel_for);

struct DeltaGradients {
  const void* grad_out = nullptr;  // like `out`
  void* grad_projected =
      nullptr;  // contiguous rows of channels(), value_size() and 2 heads' elements
  // Of each sequence; the caller adds them up. float32, written for sequences with rows alone.
  float* grad_convolution = nullptr;  // [num_sequences, channels, kernel_size]
  float* grad_a_log = nullptr;        // [num_sequences, num_value_heads]
  float* grad_dt_bias = nullptr;      // likewise
  float* grad_norm = nullptr;         // [num_sequences, num_value_heads, value_dim]
};

// The gradients of DeltaForward() for sequences that begin; computes again what they need. Working
// memory of a thread: DeltaBackwardFloats() of its sequence's rows.
void DeltaBackward(const DeltaShape& shape, absl::Span<const DeltaSequence> sequences,
                   const DeltaGradients& gradients, int num_threads,
                   const ParallelFor& parallel_for);

int64_t DeltaBackwardFloats(const DeltaShape& shape, int64_t num_rows);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_DELTA_RULE_H_
