// Logs where a non-finite loss came from.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_NONFINITE_LOSS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_NONFINITE_LOSS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "services/trainer/data/micro_batch.h"

namespace tandem::trainer {

// By name: float [num_rows] or undefined.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Logs the first of `terms`, which are in order of dependency, that has a non-finite value, with the sample and token of its first such row. `update` and
// `micro_batch_index` count from 0.
void LogNonFiniteLoss(const MicroBatch& micro_batch, int64_t update, int64_t micro_batch_index,
                      const NamedTensors& terms);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_NONFINITE_LOSS_H_
