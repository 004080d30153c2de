// Implements device_delta_attention.h for builds without CUDA: DeltaAttentionTakes() returns false, so
// the rest is never called.
#include <cstdlib>

#include "common/model/device_delta_attention.h"

namespace tandem::model::device {

bool DeltaAttentionTakes(const DeltaSpec& spec, const DeltaTensors& tensors) { return false; }

DeltaPlaces DeltaPlacesOf(const at::Tensor& cu_seqlens, at::Device device) { std::abort(); }

at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const DeltaPlaces& places) {
  std::abort();
}

}  // namespace tandem::model::device
