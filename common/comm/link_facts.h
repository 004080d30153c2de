// What some groups can tell of how their bytes move, beyond what every ProcessGroup must.
//
//   const std::string transport = comm::TransportOf(*group);          // "socket"
//   const auto arrived = comm::CompletedAt(*work);                    // after work->Wait()
#ifndef TANDEM_COMMON_COMM_LINK_FACTS_H_
#define TANDEM_COMMON_COMM_LINK_FACTS_H_

#include <chrono>
#include <string>

#include "common/comm/process_group.h"

namespace tandem::comm {

// A group that knows what it moves bytes by: "shared_memory", "local_socket", "socket", "tls"
// (where any link is encrypted), "gloo", "nccl", "cuda_ipc".
class KnowsTransport {
 public:
  virtual ~KnowsTransport() = default;
  virtual const char* transport() const = 0;
};

// An operation that knows when its last byte had moved, which may be before it is waited for.
class KnowsCompletion {
 public:
  virtual ~KnowsCompletion() = default;
  // Once it is completed.
  virtual std::chrono::steady_clock::time_point completed_at() const = 0;
};

// Empty where the group does not tell.
inline std::string TransportOf(const ProcessGroup& group) {
  const auto* knows = dynamic_cast<const KnowsTransport*>(&group);
  return knows == nullptr ? "" : knows->transport();
}

// Of a completed operation: now where it does not tell.
inline std::chrono::steady_clock::time_point CompletedAt(const Work& work) {
  const auto* knows = dynamic_cast<const KnowsCompletion*>(&work);
  return knows == nullptr ? std::chrono::steady_clock::now() : knows->completed_at();
}

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_LINK_FACTS_H_
