// The CPU kernels of attention over packed sequences (kernels/attention.h) as an operation on tensors.
//
//   const at::Tensor out = CpuAttention(q, k, v, {.cu_seqlens = cu_seqlens}, params);
#ifndef TANDEM_COMMON_MODEL_CPU_ATTENTION_H_
#define TANDEM_COMMON_MODEL_CPU_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include "common/model/attention.h"

namespace tandem::model {

// Which tokens see which. Both tensors are int64, on the CPU.
struct CpuSequences {
  at::Tensor cu_seqlens;  // [num_sequences + 1]
  at::Tensor prefixes;    // [num_sequences, 2], or undefined: see kernels/attention.h
  bool causal = true;    // false: a token also sees those behind it; then params have a scale alone
  at::Tensor seen_ends;  // [num_tokens], or undefined: see kernels/attention.h
};

// Tensors and result as in Attention::Forward(); those that KernelsTake() (cpu_dispatch.h). Score
// memory is that of one block of queries. Differentiable, with the same bits whether a graph is
// recorded or not.
at::Tensor CpuAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const CpuSequences& sequences, const AttentionParams& params);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CPU_ATTENTION_H_
