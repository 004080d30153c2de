#include "services/trainer/publish/wire_type.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/dtype.h"
#include "common/model/torch_dtype.h"

namespace tandem::trainer {

absl::StatusOr<at::ScalarType> WireType(const weights::Manifest& manifest) {
  const std::string float32(io::TorchName(io::DType::kF32));
  std::string dtype = float32;
  for (const auto& tensor : manifest.tensors()) {
    if (tensor.dtype() == dtype || tensor.dtype() == float32) continue;
    if (dtype != float32) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), " is ",
                                                     tensor.dtype(), ", others are ", dtype,
                                                     "; one type is expected besides float32"));
    }
    dtype = tensor.dtype();
  }
  const absl::StatusOr<io::DType> known = io::ParseDType(dtype);
  const auto type = known.ok() ? model::TorchDType(*known) : std::nullopt;
  if (type.has_value()) return *type;
  return absl::InvalidArgumentError(absl::StrCat("wire dtype: cannot cast to '", dtype, "'"));
}

weights::WireElement WireElementOf(at::ScalarType type) {
  return type == at::kBFloat16 ? weights::WireElement::kBfloat16
         : type == at::kHalf   ? weights::WireElement::kFloat16
                               : weights::WireElement::kFloat32;
}

}  // namespace tandem::trainer
