// What a receiver does with the bytes of a message while they arrive and are in the core's cache,
// beyond having them in their place.
//
//   if (auto* taking = dynamic_cast<TakingGroup*>(&group); taking != nullptr) {
//     ASSIGN_OR_RETURN(auto work, taking->ReceiveWith(tensor, from, tag, taker));
#ifndef TANDEM_COMMON_COMM_MESSAGE_TAKER_H_
#define TANDEM_COMMON_COMM_MESSAGE_TAKER_H_

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

// Portions begin at multiples of this within their message.
inline constexpr int64_t kTakenGrain = 64;

// Called on a thread that issues the group's operations or waits for them; never once the message's
// Wait() has returned.
class MessageTaker {
 public:
  virtual ~MessageTaker() = default;
  // Bytes [offset, offset + size) of the message are at `from`: puts them to `to`, their place.
  // From end to end of the message, each byte once. Where the two are the same address the bytes
  // are there already; else `from` may be another process's, which may change them meanwhile: each
  // byte is to be read once. `stays`: what was told of lies there until the message's end, one byte
  // after another, and may be taken with what comes later.
  virtual void Take(int64_t offset, const std::byte* from, std::byte* to, int64_t size,
                    bool stays) = 0;
};

// A group whose receiver sees the bytes arrive: those of shared memory and of sockets.
class TakingGroup {
 public:
  virtual ~TakingGroup() = default;
  // As Receive() where `taker`, which outlives the operation, puts the bytes into the tensor as
  // they arrive. A group with a thread of its own never calls it: then they are there after Wait().
  virtual ProcessGroup::WorkOr ReceiveWith(at::Tensor tensor, int from, absl::string_view tag,
                                           MessageTaker& taker) = 0;
};

}  // namespace tandem::comm

#endif  // TANDEM_COMMON_COMM_MESSAGE_TAKER_H_
