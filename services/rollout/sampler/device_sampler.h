// The sampler on a GPU.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_

#include <ATen/core/Tensor.h>

#include "absl/types/span.h"
#include "services/rollout/sampler/sampler.h"

namespace tandem::rollout {

// As Sample() of logits on a CUDA device: float32 [.., vocab], contiguous. Exponentials and sums
// may differ from the CPU's in the last bits, and so a draw whose `uniform` lies as close to the
// edge of a token's share. Returns when the tokens are there. What the device refuses is thrown.
// False where there is no kernel for them, with nothing done.
bool SampleOnDevice(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                    absl::Span<SampledToken> out);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_
