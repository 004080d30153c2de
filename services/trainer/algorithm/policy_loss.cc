#include "services/trainer/algorithm/policy_loss.h"

namespace tandem::trainer {

const PolicyLossKind* FindPolicyLoss(config::v1::PolicyLossMode mode) {
  static constexpr const PolicyLossKind* kKinds[] = {
      &kVanillaLoss, &kGspoLoss,   &kCispoLoss, &kSapoLoss,    &kGmpoLoss,  &kGpgLoss,
      &kDppoTvLoss,  &kDppoKlLoss, &kDroLoss,   &kClipCovLoss, &kKlCovLoss,
  };
  for (const PolicyLossKind* kind : kKinds) {
    if (kind->mode == mode) return kind;
  }
  return nullptr;
}

}  // namespace tandem::trainer
