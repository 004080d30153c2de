// StoredSource: the bytes of one parameter in an open folder. Its elements are those of the logical
// tensor in row-major order, however the folder stores or quantises it.
//
//   ASSIGN_OR_RETURN(StoredSource source, StoredSource::Find(folder, layout.ViewsOf(0),
//                                                            layout.quantization()));
//   RETURN_IF_ERROR(source.Copy(first, count, at::kFloat, shard));
#ifndef TANDEM_COMMON_MODEL_STORED_SOURCE_H_
#define TANDEM_COMMON_MODEL_STORED_SOURCE_H_

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/model_folder.h"
#include "common/io/safetensors.h"
#include "common/model/quantization/quantization.h"
#include "common/model/stored_view.h"

namespace tandem::model {

// Valid while the folder is open. Any number of threads may copy.
class StoredSource {
 public:
  // `views`: a parameter's, in order. `quantization`: the folder's; null if it has none. NOT_FOUND
  // if the folder lacks one of their tensors; UNIMPLEMENTED, with its name, if one is neither
  // quantised nor float32, bfloat16 or float16; FAILED_PRECONDITION if a shape differs or the
  // tensors' element types do. Errors of Quantization::Open().
  static absl::StatusOr<StoredSource> Find(const io::ModelFolder& folder,
                                           absl::Span<const StoredView> views,
                                           const Quantization* quantization);

  // Float32 for quantised tensors.
  io::DType dtype() const { return parts_[0].tensor.dtype; }
  int64_t num_elements() const;

  // Copies elements [first, first + count), converted to `dtype`, to `out` on the CPU. A source in
  // one stretch is read straight from the mapped file; others are gathered a few at a time.
  // OUT_OF_RANGE if there are fewer; QuantizedTensor::Read()'s errors.
  absl::Status Copy(int64_t first, int64_t count, at::ScalarType dtype, void* out) const;

  // Removes the tensors' pages from the resident set, whoever else reads them.
  void ReleasePages() const;

 private:
  struct Part {
    StoredView view;
    io::TensorView tensor;                             // of a quantised one no bytes
    std::shared_ptr<const QuantizedTensor> quantized;  // null if it is not
  };

  static absl::StatusOr<Part> FindPart(const io::ModelFolder& folder, const StoredView& view,
                                       const Quantization* quantization);

  explicit StoredSource(std::vector<Part> parts) : parts_(std::move(parts)) {}

  std::vector<Part> parts_;  // at least one
};

// Copies elements [first, first + count) of a tensor, converted to `dtype`, to `out` on the CPU.
// OUT_OF_RANGE if the tensor has fewer; UNIMPLEMENTED for element types other than those above.
absl::Status CopyElements(const io::TensorView& tensor, int64_t first, int64_t count,
                          at::ScalarType dtype, void* out);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_SOURCE_H_
