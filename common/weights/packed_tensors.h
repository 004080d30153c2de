// PackedTensors: what a rank holds of a model in an order of its own, in the host's memory: bytes
// are copied into it and out of it, as they travel.
#ifndef TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_
#define TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::weights {

// Tensors are those of a manifest, by number; offsets and sizes are bytes of one, whole elements.
class PackedTensors {
 public:
  virtual ~PackedTensors() = default;

  // Of the version that is staged.
  virtual void WriteStaged(int tensor, int64_t offset, absl::Span<const std::byte> from) = 0;
  virtual void ReadStaged(int tensor, int64_t offset, absl::Span<std::byte> to) const = 0;
  // Of the one that is live. FAILED_PRECONDITION where there is none.
  virtual absl::Status ReadLive(int tensor, int64_t offset, absl::Span<std::byte> to) const = 0;

  // Of any tensor: writing is fastest in whole grains, which end at every byte x of the tensor
  // where (before + x) is a multiple of `size_bytes`.
  struct Grain {
    int64_t before = 0;
    int64_t size_bytes = 0;  // 0: it is never packed
  };
  virtual Grain GrainOf(int tensor) const = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_
