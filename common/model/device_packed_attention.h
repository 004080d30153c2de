// PackedAttention of a GPU with exact numerics, forward only: packed sequences are attended to as a
// paged cache whose blocks hold one token each, by the kernel that decodes, so that a row has the
// same bits here and there.
#ifndef TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_
#define TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/attention.h"

namespace tandem::model::device {

// The largest head_dim that the kernel takes.
inline constexpr int64_t kMaxHeadDim = 512;

// True where numerics are exact, q, k and v are on one CUDA device and share float32 or bfloat16,
// and the build has the kernel for their head_dim. The rest may be called only then.
bool PackedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);

// Where the kernel finds the sequences of cu_seqlens (packed_attention.h): int32, on the device.
// Made once for all layers; waits for the device.
at::Tensor PackedPlaces(const at::Tensor& cu_seqlens, at::Device device);

// As PackedAttention::Forward(). places: of the same cu_seqlens and device. Queued on the thread's
// current stream of the device; throws what the device refuses.
at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& places, const AttentionParams& params);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_PACKED_ATTENTION_H_
