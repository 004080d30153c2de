// Attention over packed sequences on the CPU, forward and backward: causal, or of every token to all
// tokens of its sequence.
//
// A task is a sequence and one of its key-value heads. A backward task also covers the sequences
// that begin with its tokens, and sums their gradients in their order. Queries are processed in
// small blocks, with all query heads of the group, against larger blocks of keys, in causal
// attention up to the diagonal, with a running softmax. Nothing above the diagonal is computed then,
// and score memory is that of one block. Keys and values are converted and transposed once per task.
// The backward pass recomputes the probabilities from the log-sum-exp. Arithmetic is float32.
#ifndef TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_
#define TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_

#include <cstdint>

#include "common/model/kernels/alibi.h"
#include "common/model/kernels/element.h"
#include "common/model/kernels/gemm.h"
#include "common/model/kernels/window.h"

namespace tandem::model::kernels {

struct AttentionShape {
  Element type = Element::kFloat32;  // of every tensor unless noted
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;    // of q and k
  int64_t v_head_dim = 0;  // of v and the result
  float scale = 1.0f;
  float softcap = 0.0f;          // scores become softcap * tanh(score / softcap); 0: they stay
  Alibi alibi;                   // added after that
  const float* sinks = nullptr;  // [num_heads]: scores without a key and a value; or null
  Window window;                 // tokens that each token sees
  // false: a token also sees those behind it. Then without a window, ALiBi and prefixes.
  bool causal = true;
  // [num_tokens], or null: behind the last key that each token sees, counted in its sequence; never
  // falls in a sequence. Null: a token sees up to itself. Only in causal attention.
  const int64_t* seen_ends = nullptr;
  int64_t num_sequences = 0;
  const int64_t* cu_seqlens = nullptr;  // [num_sequences + 1]
  // [num_sequences, 2], or null: a sequence shares a prefix with another, computed once: the
  // prefix's first row, and its length. cu_seqlens then covers only the tokens after the prefix.
  // The other sequence starts at that row, has no prefix itself, and comes just before those that
  // share it.
  const int64_t* prefixes = nullptr;

  // [num_tokens, heads, head_dim or v_head_dim] each; strides between tokens, in elements.
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t q_stride = 0;
  int64_t k_stride = 0;
  int64_t v_stride = 0;
};

// out: [num_tokens, num_heads * v_head_dim]; log_sum_exp: float32 [num_tokens, num_heads], or none.
void AttentionForward(const AttentionShape& shape, void* out, float* log_sum_exp, int num_threads,
                      const ParallelFor& parallel_for);

// The gradients are shaped like q, k and v, without gaps; `out` and `log_sum_exp` are the
// forward's, grad_out has the layout of `out`.
struct AttentionGradients {
  const void* out = nullptr;
  const float* log_sum_exp = nullptr;
  const void* grad_out = nullptr;
  void* grad_q = nullptr;
  void* grad_k = nullptr;
  void* grad_v = nullptr;
  float* grad_sinks = nullptr;  // [num_sequences, num_heads], if there are sinks
};
void AttentionBackward(const AttentionShape& shape, const AttentionGradients& gradients,
                       int num_threads, const ParallelFor& parallel_for);

}  // namespace tandem::model::kernels

#endif  // TANDEM_COMMON_MODEL_KERNELS_ATTENTION_H_
