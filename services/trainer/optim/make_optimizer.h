// Makes the optimizer that a configuration names.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Optimizer> optimizer,
//                    MakeOptimizer(config.actor().optim(), model, mesh));
//   ASSIGN_OR_RETURN(Optimizer::StepResult result, optimizer->Step(learning_rate));
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_MAKE_OPTIMIZER_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_MAKE_OPTIMIZER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "services/trainer/optim/optimizer.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::trainer {

// Requires a configuration with every value set (config::LoadRunConfig). Allocates the optimizer's
// state: throws c10::OutOfMemoryError. INVALID_ARGUMENT for muon on a mesh with tensor parallelism.
// `mesh` is the model's; both outlive the optimizer. `vision_lr`: actor.vision_lr, which only adamw
// takes (setup::CheckVision()).
absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(const config::v1::OptimConfig& config,
                                                         ShardedModel& model,
                                                         const comm::DeviceMesh& mesh,
                                                         double vision_lr = 0);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_MAKE_OPTIMIZER_H_
