// Locates a non-finite gradient, for the line that reports a skipped update.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

// `squares`: this rank's sum of squares for each unit. Call if some rank's sum is not finite, or
// their total. Names the first unit and tensor of the first such rank: "non-finite gradient in
// layers.3 (model.layers.3.mlp.down_proj.weight) on rank 1", or "gradient too large in ..." if only
// the sum overflows its type. Collective; returns the same text on every rank.
absl::StatusOr<std::string> FindNonFiniteGradient(ShardedModel& model, const at::Tensor& squares,
                                                  comm::ProcessGroup& group);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_
