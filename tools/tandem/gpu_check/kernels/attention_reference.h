// Attention of one sequence in float64, by ATen.
#ifndef TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_ATTENTION_REFERENCE_H_
#define TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_ATTENTION_REFERENCE_H_

#include <ATen/core/Tensor.h>

#include "common/model/attention.h"

namespace tandem::gpu_check {

// Of the last tokens of a sequence: q [n, num_heads, head_dim], k and v [context, num_kv_heads,
// head_dim], of any type, on one device. Returns float64 [n, num_heads * head_dim]. Knows scale,
// softcap, window and sinks.
at::Tensor AttentionReference(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const model::AttentionParams& params);

}  // namespace tandem::gpu_check

#endif  // TANDEM_TOOLS_TANDEM_GPU_CHECK_KERNELS_ATTENTION_REFERENCE_H_
