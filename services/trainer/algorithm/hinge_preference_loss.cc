// The hinge loss on the margin (SLiC, 2305.10425; RSO, 2309.06657): pairs beyond a margin of 1 have
// no gradient; TRL's hinge.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/preference_loss.h"

namespace tandem::trainer {
namespace {

// max(0, 1 - margin).
at::Tensor HingeLoss(const at::Tensor& margin, const PreferenceLossOptions&) {
  return at::relu(1.0 - margin);
}

}  // namespace

const PreferenceLossKind kHingePreferenceLoss = {config::v1::DPO_LOSS_TYPE_HINGE, HingeLoss};

}  // namespace tandem::trainer
