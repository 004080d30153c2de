// The element types of tensors in files, by the names that safetensors and Hugging Face use.
//
//   ASSIGN_OR_RETURN(io::DType dtype, io::ParseDType("BF16"));
//   dtype == io::DType::kBF16; io::SizeOf(dtype) == 2; io::TorchName(dtype) == "bfloat16";
#ifndef TANDEM_COMMON_IO_DTYPE_H_
#define TANDEM_COMMON_IO_DTYPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
};

// Bytes of one element.
int64_t SizeOf(DType dtype);

// The name in a safetensors header: "F32", "BF16", "F8_E4M3", ...
absl::string_view Name(DType dtype);

// The name in config.json's `torch_dtype`: "float32", "bfloat16", "float8_e4m3fn", ...
absl::string_view TorchName(DType dtype);

// Accepts either of the two names. INVALID_ARGUMENT lists the safetensors names.
absl::StatusOr<DType> ParseDType(absl::string_view name);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_DTYPE_H_
