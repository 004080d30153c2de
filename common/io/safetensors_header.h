// Parses and checks the header of a safetensors file before any of it is trusted. The format is
// eight bytes of header length (little-endian), a JSON header, then the tensors' bytes.
#ifndef TANDEM_COMMON_IO_SAFETENSORS_HEADER_H_
#define TANDEM_COMMON_IO_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/dtype.h"

namespace tandem::io {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;
inline constexpr size_t kMaxTensorDimensions = 64;

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // in the data section, bytes
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// Returns the bytes of a tensor. INVALID_ARGUMENT for a negative dimension or a size beyond 63
// bits.
absl::StatusOr<int64_t> TensorBytes(DType dtype, const std::vector<int64_t>& shape);

// Parses the JSON header of a file whose data section has `data_bytes` bytes. After success every
// tensor's range lies in the data section and has the size of its dtype and shape, and the ranges
// cover the section without gap or overlap. DATA_LOSS otherwise, naming the tensor. Memory is
// proportional to the header, whatever sizes it claims.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         int64_t data_bytes);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_SAFETENSORS_HEADER_H_
