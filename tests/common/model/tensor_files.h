// Tensors as the weights of a model folder, and back.
#ifndef TANDEM_TESTS_COMMON_MODEL_TENSOR_FILES_H_
#define TANDEM_TESTS_COMMON_MODEL_TENSOR_FILES_H_

#include <ATen/ATen.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/io/safetensors.h"
#include "common/io/safetensors_writer.h"
#include "common/model/torch_dtype.h"
#include "common/status/status_macros.h"

namespace tandem::model {

using NamedTensors = std::map<std::string, at::Tensor>;

// Also the types of quantised elements and scales.
inline io::DType FileTypeOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kLong:
      return io::DType::kI64;
    case at::kByte:
      return io::DType::kU8;
    case at::kFloat8_e4m3fn:
      return io::DType::kF8E4M3;
    case at::kFloat8_e8m0fnu:
      return io::DType::kF8E8M0;
    default:
      return FileDType(tensor.scalar_type());
  }
}

// Writes model.safetensors into an existing folder.
inline absl::Status WriteTensors(const std::string& folder, const NamedTensors& tensors) {
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, FileTypeOf(tensor), tensor.sizes().vec()});
  }
  ASSIGN_OR_RETURN(auto writer,
                   io::SafetensorsWriter::Create(folder + "/model.safetensors", declarations));
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor dense = tensor.contiguous();
    RETURN_IF_ERROR(writer.Append(name, {static_cast<const std::byte*>(dense.const_data_ptr()),
                                         static_cast<size_t>(dense.nbytes())}));
  }
  return writer.Commit();
}

// Returns a copy of a float32 tensor of a file.
inline at::Tensor ToTensor(const io::TensorView& view) {
  at::Tensor tensor = at::empty(view.shape);
  std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_TENSOR_FILES_H_
