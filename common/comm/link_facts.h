// Optional interfaces of groups and operations: which transport they use, when they completed, and
// whether a graph can hold them.
//
//   const std::string transport = comm::TransportOf(*group);          // "socket"
//   const auto arrived = comm::CompletedAt(*work);                    // after work->Wait()
#ifndef TANDEM_COMMON_COMM_LINK_FACTS_H_
#define TANDEM_COMMON_COMM_LINK_FACTS_H_

#include <chrono>
#include <string>

#include "common/comm/process_group.h"

namespace tandem::comm {

// A group that can name its transport: "shared_memory", "local_socket", "socket", "tls" (if any
// link is encrypted), "gloo", "nccl", "cuda_ipc".
class KnowsTransport {
 public:
  virtual ~KnowsTransport() = default;
  virtual const char* transport() const = 0;
};

// An operation that records when its last byte moved, which may be before anyone waits for it.
class KnowsCompletion {
 public:
  virtual ~KnowsCompletion() = default;
  // Valid once the operation is completed.
  virtual std::chrono::steady_clock::time_point completed_at() const = 0;
};

// A group whose operations can be captured in a device graph: NCCL's. Captured operations have no
// deadlines of their own.
class ReplaysInGraphs {
 public:
  virtual ~ReplaysInGraphs() = default;
  // Call after a replay has been queued on the current stream: the group then breaks at its timeout
  // unless the stream has got there, as for an operation issued now.
  virtual absl::Status WatchReplay(absl::string_view tag) = 0;
};

// Empty if the group does not implement KnowsTransport.
inline std::string TransportOf(const ProcessGroup& group) {
  const auto* knows = dynamic_cast<const KnowsTransport*>(&group);
  return knows == nullptr ? "" : knows->transport();
}

// Completion time of a completed operation; now if it does not implement KnowsCompletion.
inline std::chrono::steady_clock::time_point CompletedAt(const Work& work) {
  const auto* knows = dynamic_cast<const KnowsCompletion*>(&work);
  return knows == nullptr ? std::chrono::steady_clock::now() : knows->completed_at();
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_FACTS_H_
