// Linear attention (delta_attention.h) on a GPU, by the kernels of kernels/cuda/delta_rule.h, in fast and
// in exact numerics: a row has the same bits in training and generation.
//
//   if (device::DeltaAttentionTakes(spec, tensors)) {
//     out = device::DeltaAttention(spec, tensors, device::DeltaPlacesOf(cu_seqlens, gpu));
//   }
#ifndef TANDEM_COMMON_MODEL_DEVICE_DELTA_ATTENTION_H_
#define TANDEM_COMMON_MODEL_DEVICE_DELTA_ATTENTION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "common/model/delta_attention.h"
#include "common/model/delta_sizes.h"

namespace tandem::model::device {

// Returns true if all tensors are on one CUDA device and share float32 or bfloat16, the heads are no
// larger than kMaxDeltaHeadDimOnGpu (delta_sizes.h), and the build has the kernels.
bool DeltaAttentionTakes(const DeltaSpec& spec, const DeltaTensors& tensors);

// Where the kernels find packed sequences. Those without tokens are left out.
struct DeltaPlaces {
  // int32, on the device: the sequence of each row; [num_sequences + 1] first rows; likewise, first
  // places, at which the backward pass begins chunks; and the sequence of each chunk.
  at::Tensor ints;
  int64_t num_rows = 0;
  int64_t num_sequences = 0;
  int64_t num_chunks = 0;
  int64_t boundary_bytes = kDeltaBoundaryBytesOnGpu;
};
// Compute it once for all layers. cu_seqlens: as for DeltaAttention().
DeltaPlaces DeltaPlacesOf(const at::Tensor& cu_seqlens, at::Device device);

// Like DeltaAttention(). Requires DeltaAttentionTakes(). Differentiable; the graph keeps the inputs
// alone. Queues on the thread's current stream of the device; throws device errors.
at::Tensor DeltaAttention(const DeltaSpec& spec, const DeltaTensors& tensors,
                          const DeltaPlaces& places);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_DELTA_ATTENTION_H_
