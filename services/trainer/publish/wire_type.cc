#include "services/trainer/publish/wire_type.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tandem::trainer {

absl::StatusOr<at::ScalarType> WireType(const weights::Manifest& manifest) {
  const std::string& dtype = manifest.tensors(0).dtype();
  for (const auto& tensor : manifest.tensors()) {
    if (tensor.dtype() == dtype) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), " is ", tensor.dtype(),
                                                   ", others are ", dtype,
                                                   "; one type is expected"));
  }
  if (dtype == "float32") return at::kFloat;
  if (dtype == "bfloat16") return at::kBFloat16;
  if (dtype == "float16") return at::kHalf;
  return absl::InvalidArgumentError(absl::StrCat("wire dtype: cannot cast to '", dtype, "'"));
}

weights::WireElement WireElementOf(at::ScalarType type) {
  return type == at::kBFloat16 ? weights::WireElement::kBfloat16
         : type == at::kHalf   ? weights::WireElement::kFloat16
                               : weights::WireElement::kFloat32;
}

}  // namespace tandem::trainer
