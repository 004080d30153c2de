// The sizes of linear attention as its kernels take them.
#ifndef TANDEM_COMMON_MODEL_DELTA_SIZES_H_
#define TANDEM_COMMON_MODEL_DELTA_SIZES_H_

#include <cstdint>

#include "common/model/kernels/delta_rule.h"
#include "common/model/layers/delta_spec.h"

namespace tandem::model {

// The largest key_dim and value_dim that the kernels of a GPU take (kernels/cuda/delta_rule.h).
inline constexpr int64_t kMaxDeltaHeadDimOnGpu = 256;
// Tokens of a chunk of a GPU's backward pass, and the memory of the states at chunks' boundaries, and
// of their gradients, that it holds at once: heads take turns.
inline constexpr int64_t kDeltaChunkOnGpu = 64;
inline constexpr int64_t kDeltaBoundaryBytesOnGpu = int64_t{1} << 30;

// A shape without tensors: enough for state_floats() and tail_elements().
inline kernels::DeltaShape SizesOf(const DeltaSpec& spec) {
  kernels::DeltaShape shape;
  shape.num_key_heads = spec.num_key_heads;
  shape.num_value_heads = spec.num_value_heads;
  shape.key_dim = spec.key_dim;
  shape.value_dim = spec.value_dim;
  shape.kernel_size = spec.kernel_size;
  return shape;
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_DELTA_SIZES_H_
