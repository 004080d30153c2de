// A group of ranks on one host whose tensors lie on one device: each rank reads the others' memory.
#ifndef TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_
#define TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/device_sharing.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Joins a group for weight updates: Broadcast(), Send(), Receive() and Barrier(); reductions and
// gathers are UNIMPLEMENTED. The receiver copies each byte once, in its Wait(); Wait() returns on
// both sides once the bytes have arrived. Control messages go through two shared-memory groups,
// which also provide deadlines and the errors for lost peers. `sharing`->Place() must be the same
// on all ranks. In all else like CreateGlooGroup().
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateDeviceMemoryGroup(
    const GroupOptions& options, std::unique_ptr<DeviceSharing> sharing);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_
