// The sizes of linear attention as its kernels take them.
#ifndef TANDEM_COMMON_MODEL_DELTA_SIZES_H_
#define TANDEM_COMMON_MODEL_DELTA_SIZES_H_

#include "common/model/kernels/delta_rule.h"
#include "common/model/layers/delta_spec.h"

namespace tandem::model {

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
