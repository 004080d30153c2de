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

// Writes model.safetensors into an existing folder. Types that weights cannot have are I64.
inline absl::Status WriteTensors(const std::string& folder, const NamedTensors& tensors) {
  std::vector<io::TensorDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    const io::DType dtype =
        tensor.scalar_type() == at::kLong ? io::DType::kI64 : FileDType(tensor.scalar_type());
    declarations.push_back({name, dtype, tensor.sizes().vec()});
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
