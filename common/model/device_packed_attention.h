// PackedAttention on a GPU with exact numerics, forward only. It treats packed sequences as a paged
// cache with one token per block and runs the decoding kernel, so a row has the same bits in
// training and generation.
#ifndef TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/attention.h"
#include "common/model/gpu_head_sizes.h"

namespace tandem::model::device {

// Returns true if numerics are exact, q, k and v are on one CUDA device and share float32 or
// bfloat16, and the build has the kernel for their sizes. The other functions require this.
bool PackedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Returns where the kernel finds the sequences of cu_seqlens and what their tokens see, of seen_ends,
// which may be undefined (packed_attention.h): int32, on the device. Compute it once for all layers.
at::Tensor PackedPlaces(const at::Tensor& cu_seqlens, const at::Tensor& seen_ends,
                        at::Device device);

// Like PackedAttention::Forward(). `places` belongs to the same cu_seqlens and device. Queues on
// the thread's current stream of the device; throws device errors.
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& places, const AttentionParams& params);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_
