// The GPU sampler.
#ifndef TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_
#define TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_

#include <ATen/core/Tensor.h>

#include "absl/types/span.h"
#include "services/rollout/sampler/sampler.h"

namespace tandem::rollout {

// Like Sample() for logits on a CUDA device, without adjustments, and as if nothing were forbidden:
// float32 [.., vocab], contiguous. Exponentials and sums
// may differ from the CPU's in the last bits, so a draw may too if its `uniform` is that close to
// the edge of a token's share. Synchronous. Throws device errors. Returns false, doing nothing, if
// no kernel supports the logits.
bool SampleOnDevice(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                    absl::Span<SampledToken> out);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SAMPLER_DEVICE_SAMPLER_H_
