// How evenly a step's tokens were spread over the experts.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_EXPERT_METRICS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_EXPERT_METRICS_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/comm/device_mesh.h"
#include "services/trainer/algorithm/update_statistics.h"

namespace tandem::trainer {

// rows: of each layer, the rows that its experts computed on this rank (model::ExpertLoad). Adds, for
// each layer of experts, from the rows of all ranks:
//   experts/layer_N/largest_load   the most rows of an expert over the mean
//   experts/layer_N/smallest_load  the least over the mean
//   experts/layer_N/load_entropy   entropy of the shares over that of equal ones: 1 if all are equal
//   experts/layer_N/unused         the share of experts without a row
//   experts/layer_N/expert_E       the rows of expert E over the mean, if the model has at most 256
//                                  experts in all layers
// and experts/largest_load, the largest of all layers. If ranks split the experts, also
//   experts/largest_rank_load      the most rows, of all layers, that the experts of one part compute,
//                                  over the mean of the parts
// Nothing without experts or rows. Collective if
// any layer has experts; errors are those of the collective.
absl::Status AddExpertMetrics(const std::vector<std::vector<int64_t>>& rows,
                              const comm::DeviceMesh& mesh, at::Device device, Metrics& metrics);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_EXPERT_METRICS_H_
