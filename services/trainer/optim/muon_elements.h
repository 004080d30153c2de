// The element-wise halves of a Muon step. On a CPU every element goes through the same instructions
// wherever it stands, so that its bits do not depend on how a matrix is cut into shards; ATen's
// vectorised loops compute the last elements of a range otherwise. Shapes: [count].
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_MUON_ELEMENTS_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_MUON_ELEMENTS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::trainer {

// Of a parallel loop.
inline constexpr int64_t kElementsPerTask = 1 << 15;

// With g = clip_factor * gradient: momentum := momentum + (1 - decay) (g - momentum), and
// direction := momentum, or, for Nesterov's, g + decay (momentum - g).
void AddToMomentum(const at::Tensor& gradient, double clip_factor, double decay, bool nesterov,
                   const at::Tensor& momentum, const at::Tensor& direction);

// master := keep * master - rate * direction.
void StepAgainst(const at::Tensor& direction, double rate, double keep, const at::Tensor& master);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_MUON_ELEMENTS_H_
