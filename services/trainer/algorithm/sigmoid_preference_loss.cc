// The loss of direct preference optimisation (2305.18290), with label smoothing the conservative DPO
// of its authors; and the same with log-probs divided by the completions' lengths (2405.14734,
// SimPO, keeps no reference; this does). TRL's sigmoid and sigmoid_norm.
#include <ATen/ATen.h>

#include "services/trainer/algorithm/preference_loss.h"

namespace tandem::trainer {
namespace {

// -(1 - e) log sigmoid(margin) - e log sigmoid(-margin),   e the label smoothing.
at::Tensor SigmoidLoss(const at::Tensor& margin, const PreferenceLossOptions& options) {
  return -at::log_sigmoid(margin) * (1 - options.label_smoothing) -
         at::log_sigmoid(-margin) * options.label_smoothing;
}

}  // namespace

const PreferenceLossKind kSigmoidPreferenceLoss = {config::v1::DPO_LOSS_TYPE_SIGMOID, SigmoidLoss};

const PreferenceLossKind kSigmoidNormPreferenceLoss = {config::v1::DPO_LOSS_TYPE_SIGMOID_NORM,
                                                       SigmoidLoss, /*is_length_normalized=*/true};

}  // namespace tandem::trainer
