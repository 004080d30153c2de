// Implements device_packed_attention.h for builds without CUDA: PackedAttentionTakes() returns
// false, so the rest is never called.
#include <cstdlib>

#include "common/model/device_packed_attention.h"

namespace tandem::model::device {

bool PackedAttentionTakes(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return false;
}

at::Tensor PackedPlaces(const at::Tensor& cu_seqlens, const at::Tensor& seen_ends,
                        at::Device device) {
  std::abort();
}

at::Tensor PackedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& places, const AttentionParams& params) {
  std::abort();
}

}  // namespace tandem::model::device
