// An operation's optional inputs: tensors that are undefined where a layer has none.
#ifndef TANDEM_COMMON_MODEL_OPTIONAL_TENSOR_H_
#define TANDEM_COMMON_MODEL_OPTIONAL_TENSOR_H_

#include <ATen/core/Tensor.h>

#include <optional>

namespace tandem::model {

inline at::Tensor ContiguousOrUndefined(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}

inline const void* DataOrNull(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr() : nullptr;
}

template <typename T>
const T* DataOrNull(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

// As torch::autograd::Function takes it, which counts only the tensors that are there.
inline std::optional<at::Tensor> OptionalOf(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_OPTIONAL_TENSOR_H_
