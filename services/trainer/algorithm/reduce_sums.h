// Sums metrics over the ranks.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/comm/device_mesh.h"

namespace tandem::trainer {

// Replaces each entry by its sum over the ranks; ranks that computed the same count once.
// Collective: every rank passes equally many entries. `device` is the one on which the mesh moves
// tensors; `what` names the collective in errors, which are those of the collective.
absl::Status ReduceSums(absl::Span<double> sums, const comm::DeviceMesh& mesh, at::Device device,
                        absl::string_view what);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_
