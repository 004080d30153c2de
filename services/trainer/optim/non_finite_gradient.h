// Says where a gradient is not finite, for the line that reports a skipped update.
#ifndef TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_
#define TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_

#include <ATen/core/Tensor.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"
#include "services/trainer/fsdp/sharded_model.h"

namespace tandem::trainer {

// `squares`: this rank's sums of squares, one for each unit, one of which is not finite on some
// rank. Names the first unit and tensor of the first such rank: "non-finite gradient in layers.3
// (model.layers.3.mlp.down_proj.weight) on rank 1"; where a sum alone is too large for its type,
// "gradient too large in ...". Collective; the same text on every rank.
absl::StatusOr<std::string> FindNonFiniteGradient(ShardedModel& model, const at::Tensor& squares,
                                                  comm::ProcessGroup& group);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_OPTIM_NON_FINITE_GRADIENT_H_
