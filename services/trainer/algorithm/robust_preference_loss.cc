// Provably robust DPO (2403.00409): unbiased if a share of the pairs, the label smoothing, is
// labelled wrongly; TRL's robust.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/preference_loss.h"

namespace tandem::trainer {
namespace {

// (-(1 - e) log sigmoid(margin) + e log sigmoid(-margin)) / (1 - 2 e),   e the label smoothing.
at::Tensor RobustLoss(const at::Tensor& margin, const PreferenceLossOptions& options) {
  const double e = options.label_smoothing;
  return (-at::log_sigmoid(margin) * (1 - e) + at::log_sigmoid(-margin) * e) / (1 - 2 * e);
}

}  // namespace

const PreferenceLossKind kRobustPreferenceLoss = {config::v1::DPO_LOSS_TYPE_ROBUST, RobustLoss};

}  // namespace tandem::trainer
