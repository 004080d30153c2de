// device_latents.h in a build without CUDA.
#include <c10/util/Exception.h>

#include "common/model/device_latents.h"

namespace tandem::model::device {

void WriteLatentRows(const at::Tensor& q, const at::Tensor& latent, const at::Tensor& shared,
                     const LatentShape& shape, const RotaryAngles& angles, AbsorbedHeads& out) {
  TORCH_CHECK(false, "this build has no kernels for GPUs");
}

}  // namespace tandem::model::device
