// Whether all ranks compute the same bits.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_

#include <c10/core/Device.h>

#include "absl/status/status.h"
#include "common/comm/process_group.h"

namespace tandem::trainer {

// Called on every rank of the group, whose tensors are on `device`. FAILED_PRECONDITION on each
// where not all have the same model::CurrentProcessor(), with this rank's; errors of the group.
absl::Status CheckSameKernels(comm::ProcessGroup& world, at::Device device);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_SAME_KERNELS_H_
