// PackedTensors: a rank's tensors in host memory, in a layout of the implementation's choice.
// Copies bytes in wire order into and out of it.
#ifndef TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_
#define TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tandem::weights {

// Tensors are manifest indices; offsets and sizes are bytes within one tensor, whole elements.
class PackedTensors {
 public:
  virtual ~PackedTensors() = default;

  // Access the staged version.
  virtual void WriteStaged(int tensor, int64_t offset, absl::Span<const std::byte> from) = 0;
  virtual void ReadStaged(int tensor, int64_t offset, absl::Span<std::byte> to) const = 0;
  // Reads the live version. FAILED_PRECONDITION if there is none.
  virtual absl::Status ReadLive(int tensor, int64_t offset, absl::Span<std::byte> to) const = 0;

  // Writing is fastest in whole grains, which end at every byte x of the tensor where (before + x)
  // is a multiple of `size_bytes`.
  struct Grain {
    int64_t before = 0;
    int64_t size_bytes = 0;  // 0: the tensor is never packed
  };
  virtual Grain GrainOf(int tensor) const = 0;
};

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_PACKED_TENSORS_H_
