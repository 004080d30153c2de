// The element types of weights, as files name them (io::DType) and as LibTorch does.
#ifndef TANDEM_COMMON_MODEL_TORCH_DTYPE_H_
#define TANDEM_COMMON_MODEL_TORCH_DTYPE_H_

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "common/io/dtype.h"

namespace tandem::model {

inline constexpr std::array<std::pair<io::DType, at::ScalarType>, 3> kTorchDTypes = {{
    {io::DType::kF32, at::kFloat},
    {io::DType::kBF16, at::kBFloat16},
    {io::DType::kF16, at::kHalf},
}};

// No value for a type that weights cannot have here.
constexpr std::optional<at::ScalarType> TorchDType(io::DType dtype) {
  for (const auto& [file, torch] : kTorchDTypes) {
    if (file == dtype) return torch;
  }
  return std::nullopt;
}

// Aborts for another type than those above.
inline io::DType FileDType(at::ScalarType dtype) {
  for (const auto& [file, torch] : kTorchDTypes) {
    if (torch == dtype) return file;
  }
  std::abort();
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TORCH_DTYPE_H_
