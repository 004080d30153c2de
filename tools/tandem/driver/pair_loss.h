// The preference losses of dpo.loss_type as numbers, for rows that are not trained on. The trainer
// has the same formulas with gradients (services/trainer/algorithm/preference_loss.h).
//
//   const double margin = dpo.beta() * ((chosen - rejected) - (ref_chosen - ref_rejected));
//   loss += PairLoss(dpo, margin);
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PAIR_LOSS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PAIR_LOSS_H_

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::driver {

// Whether a completion's log-prob is the mean over its tokens, not their sum.
bool IsLengthNormalized(config::v1::DpoLossType type);

// The loss of a pair whose chosen completion is ahead by `margin`, beta times the difference of the
// log-ratios. DPO_LOSS_TYPE_UNSPECIFIED is the default, sigmoid.
double PairLoss(const config::v1::DpoConfig& config, double margin);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PAIR_LOSS_H_
