// MessageTaker: processes the bytes of a message as they arrive, while they are in the core's
// cache.
//
//   if (auto* taking = dynamic_cast<TakingGroup*>(&group); taking != nullptr) {
//     ASSIGN_OR_RETURN(auto work, taking->ReceiveWith(tensor, from, tag, taker));
//     RETURN_IF_ERROR(work->Wait());
//   }
#ifndef TANDEM_COMMON_COMM_MESSAGE_TAKER_H_
#define TANDEM_COMMON_COMM_MESSAGE_TAKER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Portions start at multiples of this offset within their message.
inline constexpr int64_t kTakenGrain = 64;

// Called on threads that issue the group's operations or wait for them, never after the message's
// Wait() has returned.
class MessageTaker {
 public:
  virtual ~MessageTaker() = default;
  // Copies bytes [offset, offset + size) of the message from `from` to their place `to`. Calls
  // cover the message in order, each byte once. If `from` equals `to`, the bytes are already in
  // place; otherwise `from` may be another process's memory, which can change concurrently: read
  // each byte only once. `stays`: the bytes stay contiguous at `from` until the end of the message,
  // so the taker may defer them and process them with later ones.
  virtual void Take(int64_t offset, const std::byte* from, std::byte* to, int64_t size,
                    bool stays) = 0;
};

// A group whose receives can run a MessageTaker: shared-memory and socket groups.
class TakingGroup {
 public:
  virtual ~TakingGroup() = default;
  // Like Receive(), but `taker`, which must outlive the operation, puts the bytes into the tensor
  // as they arrive. A group with its own thread never calls it; the bytes are there after Wait().
  virtual ProcessGroup::WorkOr ReceiveWith(at::Tensor tensor, int from, absl::string_view tag,
                                           MessageTaker& taker) = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESSAGE_TAKER_H_
