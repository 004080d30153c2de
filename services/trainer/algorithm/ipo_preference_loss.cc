// Identity preference optimisation (2310.12036): pulls the difference to a finite target, so that
// certain preferences do not drive it to infinity; TRL's ipo.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/preference_loss.h"

namespace tandem::trainer {
namespace {

// (margin / beta - 1 / (2 beta))^2, with log-probs averaged over tokens, as the authors advise.
at::Tensor IpoLoss(const at::Tensor& margin, const PreferenceLossOptions& options) {
  return (margin / options.beta - 1.0 / (2.0 * options.beta)).square();
}

}  // namespace

const PreferenceLossKind kIpoPreferenceLoss = {config::v1::DPO_LOSS_TYPE_IPO, IpoLoss,
                                               /*is_length_normalized=*/true};

}  // namespace tandem::trainer
