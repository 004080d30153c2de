// SampleOnDevice() for builds without CUDA.
#include "services/rollout/sampler/device_sampler.h"

namespace tandem::rollout {

bool SampleOnDevice(const at::Tensor& logits, absl::Span<const SampleRow> rows,
                    absl::Span<SampledToken> out) {
  return false;
}

}  // namespace tandem::rollout
