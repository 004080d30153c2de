// HostStagingGroup: a group for tensors in host memory that also carries tensors of a device, for
// ranks of which some compute on GPUs that NCCL or CUDA IPC cannot connect.
//
//   const std::unique_ptr<ProcessGroup> group = StageOnHost(std::move(host_group), device);
//   ASSIGN_OR_RETURN(auto work, group->Send(bucket_on_the_gpu, 1, "bucket 7"));
#ifndef TANDEM_COMMON_COMM_HOST_STAGING_GROUP_H_
#define TANDEM_COMMON_COMM_HOST_STAGING_GROUP_H_

#include <memory>

#include "common/comm/process_group.h"
#include "common/device/device.h"

namespace tandem::comm {

// Returns a group that passes tensors in host memory on to `group`, and copies those of `device`
// through page-locked memory: a sent one before the call returns, a received one in Wait(). For
// weight updates: Send(), Receive(), Broadcast() and Barrier(); the other collectives take host
// tensors only. Every rank may stage or not, whatever its peers do: the same bytes travel.
// Copies are ordered on the calling thread's current stream. Errors: those of `group` and of the
// device.
std::unique_ptr<ProcessGroup> StageOnHost(std::unique_ptr<ProcessGroup> group,
                                          std::shared_ptr<device::Device> device);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_HOST_STAGING_GROUP_H_
