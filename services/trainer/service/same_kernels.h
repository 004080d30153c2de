// Checks that all ranks compute the same bits.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// Collective; the group moves tensors on `device`. FAILED_PRECONDITION on every rank, naming its
// own model::CurrentProcessor(), unless all have the same; otherwise errors of the group.
absl::Status CheckSameKernels(comm::ProcessGroup& world, at::Device device);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_
