// The learning rate of each optimizer step.
//
//   const double lr = LearningRate(config.actor().optim(), step, total_steps);
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_

#include <cstdint>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

// Returns the rate of step `step`, counted from 0, of `total_steps`. During warm-up it is
// lr * step / warmup_steps, so the first step of a run with warm-up leaves the weights unchanged,
// as with transformers' schedules. Afterwards it is constant, or decays to lr * min_lr_ratio at
// total_steps and stays there. Unset fields take the config's defaults.
double LearningRate(const config::v1::OptimConfig& config, int64_t step, int64_t total_steps);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_
