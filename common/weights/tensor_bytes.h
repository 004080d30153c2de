// A tensor's memory as bytes.
#ifndef TANDEM_COMMON_WEIGHTS_TENSOR_BYTES_H_
#define TANDEM_COMMON_WEIGHTS_TENSOR_BYTES_H_

#include <ATen/ATen.h>

#include <cstddef>

#include "absl/types/span.h"

namespace tandem::weights {

// Returns the bytes of a contiguous host tensor, which must outlive them.
inline absl::Span<std::byte> BytesOf(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_TENSOR_BYTES_H_
