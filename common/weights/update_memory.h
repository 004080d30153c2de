// UpdateMemory: a rank's tensors as a weight update sees them: the staged version, which it writes,
// and the live one, which deltas apply to. The buckets' sink (tensor_sink.h) and the relay
// (relay_sender.h) work in it directly, so no copy of a tensor lies between the group that receives
// a byte and the arena that serves it.
#ifndef TANDEM_COMMON_WEIGHTS_UPDATE_MEMORY_H_
#define TANDEM_COMMON_WEIGHTS_UPDATE_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/weights/device_ops.h"

namespace tandem::weights {

// Tensors are manifest indices; offsets and sizes are bytes within one tensor, whole elements. One
// thread at a time.
class UpdateMemory {
 public:
  virtual ~UpdateMemory() = default;

  // The device of the memory and its operations; the spans are addresses on it. Constant.
  virtual DeviceOps& ops() const { return CpuOps(); }

  // The bytes of a tensor in the staged version, at a fixed address; empty for a packed tensor.
  virtual absl::Span<std::byte> Staged(int tensor) = 0;
  // The bytes of a tensor in the live version; empty for a packed tensor and while there is none.
  virtual absl::Span<const std::byte> Live(int tensor) const = 0;
  // Reports bytes at Staged(tensor) as final, once each, after they are digested. The implementation
  // can derive its other data from them while more bytes arrive. An error ends the update.
  virtual absl::Status Arrived(int /*tensor*/, int64_t /*offset*/, int64_t /*size*/) {
    return absl::OkStatus();
  }

  // True: a tensor whose spans are empty is packed, in host memory and in a layout of the
  // implementation's choice, which the following functions write and read in wire order; nobody
  // calls them otherwise. Constant.
  virtual bool packs() const { return false; }
  virtual void WriteStaged(int /*tensor*/, int64_t /*offset*/,
                           absl::Span<const std::byte> /*from*/) {}
  virtual void ReadStaged(int /*tensor*/, int64_t /*offset*/, absl::Span<std::byte> /*to*/) const {}
  // FAILED_PRECONDITION if there is no live version.
  virtual absl::Status ReadLive(int /*tensor*/, int64_t /*offset*/,
                                absl::Span<std::byte> /*to*/) const {
    return absl::FailedPreconditionError("no tensor is packed");
  }

  // Writing is fastest in whole grains, which end at every byte x of the tensor where (before + x)
  // is a multiple of `size_bytes`.
  struct Grain {
    int64_t before = 0;
    int64_t size_bytes = 0;  // 0: the tensor is never packed
  };
  virtual Grain GrainOf(int /*tensor*/) const { return {}; }
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_UPDATE_MEMORY_H_
