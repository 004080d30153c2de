// Causal attention over packed sequences on the CPU, forward and backward.
//
// A task is a sequence and one of its key-value heads; backward, together with the sequences that
// begin with its tokens, whose gradients are added up in their order. Queries are taken in small
// blocks, with all query heads of the group, and meet the keys in larger blocks up to the diagonal,
// with a running softmax; what lies above the diagonal is not computed, and the scores' memory is
// that of one block. Keys and values are converted and transposed once for a task. The backward
// pass computes the probabilities again from the logarithm of their sum. Arithmetic is float32.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_
#define TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_

#include <cstdint>

#include "common/model/kernels/element.h"
#include "common/model/kernels/gemm.h"

namespace tandem::model::kernels {

struct AttentionShape {
  Element type = Element::kFloat32;  // of every tensor unless said otherwise
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  int64_t window = 0;  // each token sees so many, itself included; 0: all
  int64_t num_sequences = 0;
  const int64_t* cu_seqlens = nullptr;  // [num_sequences + 1]
  // [num_sequences, 2], or none: a sequence begins with tokens of another, which are computed once:
  // the row of the first of them, and how many. cu_seqlens then has the tokens that follow them.
  // The other begins with that row, has no such prefix itself, and comes just before those that
  // share it.
  const int64_t* prefixes = nullptr;

  // [num_tokens, heads, head_dim] each; strides between tokens, in elements.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
};

// out: [num_tokens, num_heads * head_dim]; log_sum_exp: float32 [num_tokens, num_heads], or none.
void AttentionForward(const AttentionShape& shape, void* out, float* log_sum_exp, int num_threads,
                      const ParallelFor& parallel_for);

// The gradients are [num_tokens, heads, head_dim], without gaps; `out` and `log_sum_exp` are the
// forward's, grad_out is like `out`.
struct AttentionGradients {
  const void* out = nullptr;
  const float* log_sum_exp = nullptr;
  const void* grad_out = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
};
void AttentionBackward(const AttentionShape& shape, const AttentionGradients& gradients,
                       int num_threads, const ParallelFor& parallel_for);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_
