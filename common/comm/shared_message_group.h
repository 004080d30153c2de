// Shared-memory group for messages among ranks on one host.
#ifndef TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_
#define TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Like CreateSharedMemoryGroup() (choose_group.h), but messages move only on the threads that issue
// them and wait for them, so that received bytes are in the core's cache. In both groups, the
// receiver copies a message in shareable memory (shareable_memory.h) once, and its send completes
// after that copy; other messages take two copies.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMessageGroup(const GroupOptions& options);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_
