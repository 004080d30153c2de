// Sums of what is reported, over the ranks.
#ifndef TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_
#define TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/comm/device_mesh.h"

namespace tandem::trainer {

// Replaces each entry by its sum over the ranks, of which those that computed the same count once.
// Collective: every rank calls it with as many entries. `device` is the one that the mesh moves
// tensors on; `what` names the collective in errors, which are its own.
absl::Status ReduceSums(absl::Span<double> sums, const comm::DeviceMesh& mesh, at::Device device,
                        absl::string_view what);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_ALGORITHM_REDUCE_SUMS_H_
