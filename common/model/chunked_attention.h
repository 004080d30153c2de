// ChunkedAttention(): attention of packed sequences in ATen's operators, a few queries at a time. It
// serves devices and layers that no fused kernel takes: the scores of one chunk exist at once, in both
// directions, so memory grows with the number of tokens and not with its square.
#ifndef TANDEM_COMMON_MODEL_CHUNKED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_CHUNKED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/attention.h"
#include "common/model/score_chunk.h"

namespace tandem::model {

// Arguments and result as PackedAttention::Forward(); cu_seqlens and seen_ends as there.
// Differentiable in q, k, v and the sinks: the backward pass computes each chunk again. Only q, k, v
// and the sinks are kept.
at::Tensor ChunkedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& cu_seqlens, const AttentionParams& params,
                            int64_t scores_at_once = kScoresAtOnce,
                            const at::Tensor& seen_ends = {});

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_CHUNKED_ATTENTION_H_
