#include "services/trainer/optim/muon_elements.h"

#include <ATen/Parallel.h>
#include <ATen/ops/lerp.h>

#include <cstdint>

namespace tandem::trainer {

void AddToMomentum(const at::Tensor& gradient, double clip_factor, double decay, bool nesterov,
                   const at::Tensor& momentum, const at::Tensor& direction) {
  if (!momentum.is_cpu()) {
    const at::Tensor g = gradient.mul(clip_factor);
    momentum.lerp_(g, 1.0 - decay);
    direction.copy_(nesterov ? at::lerp(g, momentum, decay) : momentum);
    return;
  }
  const float* const gradients = gradient.const_data_ptr<float>();
  float* const momenta = momentum.mutable_data_ptr<float>();
  float* const to = direction.mutable_data_ptr<float>();
  const auto clip = static_cast<float>(clip_factor);
  const auto fresh = static_cast<float>(1.0 - decay);
  const auto kept = static_cast<float>(decay);
  at::parallel_for(0, momentum.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = clip * gradients[i];
      const float m = momenta[i] + fresh * (g - momenta[i]);
      momenta[i] = m;
      to[i] = nesterov ? g + kept * (m - g) : m;
    }
  });
}

void StepAgainst(const at::Tensor& direction, double rate, double keep, const at::Tensor& master) {
  if (!master.is_cpu()) {
    master.mul_(keep).sub_(direction, rate);
    return;
  }
  const float* const from = direction.const_data_ptr<float>();
  float* const to = master.mutable_data_ptr<float>();
  const auto step = static_cast<float>(rate);
  const auto kept = static_cast<float>(keep);
  at::parallel_for(0, master.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = kept * to[i] - step * from[i];
  });
}

}  // namespace tandem::trainer
