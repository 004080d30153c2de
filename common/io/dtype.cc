#include "common/io/dtype.h"

#include <array>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tandem::io {
namespace {

struct Entry {
  DType dtype;
  int64_t size_bytes;
  absl::string_view name;
  absl::string_view torch_name;
};

// In the order of the enum.
constexpr std::array<Entry, 16> kEntries = {{
    {DType::kF64, 8, "F64", "float64"},
    {DType::kF32, 4, "F32", "float32"},
    {DType::kF16, 2, "F16", "float16"},
    {DType::kBF16, 2, "BF16", "bfloat16"},
    {DType::kI64, 8, "I64", "int64"},
    {DType::kI32, 4, "I32", "int32"},
    {DType::kI16, 2, "I16", "int16"},
    {DType::kI8, 1, "I8", "int8"},
    {DType::kU64, 8, "U64", "uint64"},
    {DType::kU32, 4, "U32", "uint32"},
    {DType::kU16, 2, "U16", "uint16"},
    {DType::kU8, 1, "U8", "uint8"},
    {DType::kBool, 1, "BOOL", "bool"},
    {DType::kF8E4M3, 1, "F8_E4M3", "float8_e4m3fn"},
    {DType::kF8E5M2, 1, "F8_E5M2", "float8_e5m2"},
    {DType::kF8E8M0, 1, "F8_E8M0", "float8_e8m0fnu"},
}};

const Entry& EntryOf(DType dtype) { return kEntries[static_cast<size_t>(dtype)]; }

}  // namespace

int64_t SizeOf(DType dtype) { return EntryOf(dtype).size_bytes; }
absl::string_view Name(DType dtype) { return EntryOf(dtype).name; }
absl::string_view TorchName(DType dtype) { return EntryOf(dtype).torch_name; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  std::string known;
  for (const Entry& entry : kEntries) {
    if (entry.name == name || entry.torch_name == name) return entry.dtype;
    absl::StrAppend(&known, known.empty() ? "" : ", ", entry.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("dtype: expected one of ", known, "; found \"",
                                                 absl::CHexEscape(name.substr(0, 64)), "\""));
}

}  // namespace tandem::io
