// A group of ranks of one host whose tensors lie on one device: each reads the others' memory.
#ifndef TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_
#define TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/device_sharing.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// For weight updates: Broadcast(), Send(), Receive() and Barrier(); the reductions and gathers are
// UNIMPLEMENTED. A byte is copied once, by who receives it, in its Wait(); both sides' Wait()
// return when it is there. What is said about the bytes goes through two groups in shared memory,
// from which deadlines and the errors of peers that are gone come. Otherwise as CreateGlooGroup;
// `sharing` must say the same place on all ranks.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateDeviceMemoryGroup(
    const GroupOptions& options, std::unique_ptr<DeviceSharing> sharing);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_DEVICE_MEMORY_GROUP_H_
