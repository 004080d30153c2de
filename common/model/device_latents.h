// The parts of absorbed heads (absorbed_heads.h) that are no products, on a GPU.
#ifndef TANDEM_COMMON_MODEL_DEVICE_LATENTS_H_
#define TANDEM_COMMON_MODEL_DEVICE_LATENTS_H_

#include <ATen/core/Tensor.h>

#include "common/model/absorbed_heads.h"

namespace tandem::model::device {

// Writes the rotated parts of q and of the keys, and the latents, to `out`; arguments as those of
// AbsorbQueries(), on one CUDA device. Queues on the thread's current stream of the device; throws device
// errors, and in a build without TANDEM_CUDA.
void WriteLatentRows(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                     const LatentShape& shape, const RotaryAngles& angles, AbsorbedHeads& out);

}  // namespace tandem::model::device

#endif  // TANDEM_COMMON_MODEL_DEVICE_LATENTS_H_
