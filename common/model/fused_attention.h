// FusedAttention(): attention of packed sequences by ATen's fused kernels of a GPU, all sequences in one
// launch, without a matrix of scores: FlashAttention-2 (2307.08691) for bfloat16 and float16, CUTLASS's
// memory-efficient attention (2112.05682) for float32.
#ifndef TANDEM_COMMON_MODEL_FUSED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_FUSED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/attention.h"

namespace tandem::model {

// Packed sequences as the kernels read them.
struct FusedSequences {
  at::Tensor starts;  // int32 [num_sequences + 1], on the device
  int64_t longest = 0;
  bool causal = true;  // else each token sees all of its sequence
};

// cu_seqlens: as of PackedAttention. Copies without waiting for the device.
FusedSequences FusedSequencesOf(const at::Tensor& cu_seqlens, at::Device device);

// Whether the kernels compute this attention: q, k and v on one CUDA device, equal sizes of keys and
// values, no softcap, sinks, chunks or ALiBi, and in float32 no window.
bool FusedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const AttentionParams& params);

// Arguments and result as PackedAttention::Forward(), if FusedAttentionTakes() them. Without
// FusedSequences::causal no window. Differentiable in q, k and v. The backward pass of bfloat16 adds in
// an order that differs from run to run.
at::Tensor FusedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const FusedSequences& sequences, const AttentionParams& params);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FUSED_ATTENTION_H_
