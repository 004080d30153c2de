// Quantization: how a model's folder stores quantised weights, and their values. config.json names
// the method in quantization_config.quant_method:
//
//   fp8     NAME, float8_e4m3fn, and NAME_scale_inv or NAME_scale: a factor for each block of a
//           matrix, or for all of it
//   mxfp4   NAME_blocks, two float4_e2m1fn a byte, and NAME_scales: a power of two for each 32 of
//           them
//
// A tensor without scales is stored as it is, whatever modules_to_not_convert and ignored_layers
// list. Loading computes the values, range by range; nothing else knows that they were quantised.
//
//   ASSIGN_OR_RETURN(const auto quantization, ReadQuantization(config.json, config.path));
//   if (quantization != nullptr) {
//     for (const StoredPart& part : quantization->PartsOf(folder, name, shape)) Use(part.name);
//   }
#ifndef TANDEM_COMMON_MODEL_QUANTIZATION_QUANTIZATION_H_
#define TANDEM_COMMON_MODEL_QUANTIZATION_QUANTIZATION_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/model_folder.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// A tensor of a folder that holds quantised elements or scales, and the shape that it must have.
struct StoredPart {
  std::string name;
  std::vector<int64_t> shape;
};

// One quantised tensor of an open folder, which must outlive it. Any number of threads may read.
class QuantizedTensor {
 public:
  virtual ~QuantizedTensor() = default;

  // Writes elements first, first + stride, ... of the tensor in row-major order, `count` of them;
  // all must exist. Reads only what these need. DATA_LOSS, with file, tensor and place, for a scale
  // that no writer of the method writes: NaN, infinite or negative.
  virtual absl::Status Read(int64_t first, int64_t count, int64_t stride, float* out) const = 0;

  // Like io::ReleasePages(), for elements and scales.
  virtual void ReleasePages() const = 0;
};

// A method with its settings. Immutable; threads may share it. `name` and `shape` are those of the
// tensor without quantisation.
class Quantization {
 public:
  virtual ~Quantization() = default;

  // "fp8"
  virtual absl::string_view method() const = 0;

  // The tensors that the folder has, or should have, in place of the tensor: elements and scales.
  // Empty if it has the tensor unquantised, or not at all.
  virtual std::vector<StoredPart> PartsOf(const io::ModelFolder& folder, const std::string& name,
                                          const std::vector<int64_t>& shape) const = 0;

  // Opens a tensor that has parts. NOT_FOUND if one is missing, FAILED_PRECONDITION if it has
  // another shape, UNIMPLEMENTED for another element type or a layout that the method does not have;
  // each with file and tensor.
  virtual absl::StatusOr<std::shared_ptr<const QuantizedTensor>> Open(
      const io::ModelFolder& folder, const std::string& name,
      const std::vector<int64_t>& shape) const = 0;

  // Whether the tensor of this name only serves computing with quantised numbers, as the scales of
  // activations do.
  virtual bool Ignores(absl::string_view name) const = 0;
};

// Reads the "quantization_config" of a config.json; null if there is none. `place` names the file in
// errors. UNIMPLEMENTED for another method than those above, INVALID_ARGUMENT for a setting that it
// does not have.
absl::StatusOr<std::shared_ptr<const Quantization>> ReadQuantization(const nlohmann::json& config,
                                                                     const std::string& place);

// Finds a part in the folder. Errors are those of Quantization::Open(), `types` being those allowed.
absl::StatusOr<io::TensorView> FindPart(const io::ModelFolder& folder, const StoredPart& part,
                                        std::initializer_list<io::DType> types);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_QUANTIZATION_QUANTIZATION_H_
