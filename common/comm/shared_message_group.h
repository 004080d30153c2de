// Messages among ranks of one host.
#ifndef TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_
#define TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// As CreateSharedMemoryGroup() (choose_group.h), for messages: they move on the threads that issue
// them and wait for them, and on no other, so that what has been received is in the core's cache.
// A message whose bytes lie in shareable memory (shareable_memory.h) is copied once, by its
// receiver, and sent when that has been done; others take two copies. That is so in either group.
absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateSharedMessageGroup(const GroupOptions& options);

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_SHARED_MESSAGE_GROUP_H_
