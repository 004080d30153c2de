// The learning rate of each optimizer step.
//
//   const double lr = LearningRate(config.actor().optim(), step, total_steps);
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_

#include <cstdint>

#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

// The rate of the step after `step` others, of `total_steps` in all. Over the warm-up it is lr
// times step / warmup_steps, so the first step of a run with warm-up leaves the weights as they
// are, as with transformers' schedules; then constant, or falling to lr * min_lr_ratio at
// total_steps and staying there. The config's defaults apply to fields that are not set.
double LearningRate(const config::v1::OptimConfig& config, int64_t step, int64_t total_steps);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_LR_SCHEDULE_H_
