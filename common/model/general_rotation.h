// RotateQkv() (rotary.h) on the CPU for rotations that are not plain: other norms, partial and
// interleaved rotation or none, scaled queries.
#ifndef TANDEM_COMMON_MODEL_GENERAL_ROTATION_H_
#define TANDEM_COMMON_MODEL_GENERAL_ROTATION_H_

#include <ATen/core/Tensor.h>

#include "common/model/rotary.h"

namespace tandem::model {

// All tensors are on the CPU; qkv and the norms' tensors share float32 or bfloat16. Differentiable.
Qkv RotateGenerally(const at::Tensor& qkv, const HeadRotation& rotation);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_GENERAL_ROTATION_H_
