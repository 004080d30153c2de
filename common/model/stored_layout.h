// StoredLayout: where a folder has each of a model's parameters, computed from the rules of its
// family (stored_rule.h) and the parameters' shapes. Loading, comparing and export go through it;
// everything else knows parameters by their canonical names.
//
//   ASSIGN_OR_RETURN(StoredLayout layout, StoredLayout::Create(table, &folder));
//   for (const StoredView& view : layout.ViewsOf(0)) Use(view.tensor, view.strides);
#ifndef TANDEM_COMMON_MODEL_STORED_LAYOUT_H_
#define TANDEM_COMMON_MODEL_STORED_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/io/dtype.h"
#include "common/io/model_folder.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "common/model/quantization/quantization.h"
#include "common/model/stored_name.h"
#include "common/model/stored_view.h"

namespace tandem::model {

// A parameter's logical tensor: a segment of the table, whole.
struct LogicalParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool in_float32 = false;  // whatever the others are in (Parameter::in_float32)
};

// A tensor of the folder and the views that make it up.
struct StoredTensor {
  struct Part {
    size_t parameter = 0;
    size_t view = 0;  // of the parameter's
  };

  std::string name;
  std::vector<int64_t> shape;
  std::vector<Part> parts;  // in the parameters' order
  bool has_gaps = false;    // rows that belong to no parameter (StoredRule::skip_rows)
};

// Immutable; threads may share it.
class StoredLayout {
 public:
  // Parameters keep their order. `folder`: takes its names, which may have or lack a prefix, and
  // its quantization; null: those of the rules. INVALID_ARGUMENT, with the tensor and its
  // parameters: rows that do not split into the rule's heads, a part that is no parameter, views of
  // one tensor that overlap, leave a gap or do not agree on its shape. Errors of
  // ReadQuantization().
  static absl::StatusOr<StoredLayout> Create(const ModelSpec& spec,
                                             std::vector<LogicalParameter> parameters,
                                             const io::ModelFolder* folder);
  // Parameters are the table's segments, in canonical order.
  static absl::StatusOr<StoredLayout> Create(const ParameterTable& table,
                                             const io::ModelFolder* folder);

  const std::vector<LogicalParameter>& parameters() const { return parameters_; }
  // The parameter's views, in the order of its elements, which they cover: one, or one per head.
  absl::Span<const StoredView> ViewsOf(size_t parameter) const { return views_[parameter]; }
  // In the order of their first parameters.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // "a, b": the parameters that the tensor holds.
  std::string DescribeParts(const StoredTensor& tensor) const;
  // The type in which an export in `dtype` writes the tensor.
  io::DType DTypeOf(const StoredTensor& tensor, io::DType dtype) const {
    return parameters_[tensor.parts.front().parameter].in_float32 ? io::DType::kF32 : dtype;
  }

  // How the folder's tensors are quantised; null if they are not, or there is no folder. Shapes and
  // views above are those without quantisation, which an export writes.
  const Quantization* quantization() const { return quantization_.get(); }

  // The parameter that a folder may also have as the output projection, because they are tied, and
  // its view there; -1 and no views otherwise.
  int tied_parameter() const { return tied_parameter_; }
  absl::Span<const StoredView> tied_views() const { return tied_views_; }

  // Scalars of the folder beside the parameters, with the layers' numbers.
  const std::vector<StoredConstant>& constants() const { return constants_; }

  // Whether a tensor of the folder is known to be no parameter: it matches the family's patterns,
  // is one of the constants, a rotary buffer of an old checkpoint, the output projection of a model
  // with a value head, or known to the folder's quantization.
  bool Ignores(const std::string& name) const;

 private:
  explicit StoredLayout(std::vector<LogicalParameter> parameters)
      : parameters_(std::move(parameters)) {}

  void TakeNamesOf(const ModelSpec& spec, const io::ModelFolder& folder);

  std::vector<LogicalParameter> parameters_;
  std::vector<std::vector<StoredView>> views_;  // of each parameter
  std::vector<StoredTensor> tensors_;
  int tied_parameter_ = -1;
  std::vector<StoredView> tied_views_;
  std::vector<StoredConstant> constants_;
  std::vector<std::string> ignored_;  // patterns
  FolderPrefix prefix_;
  std::shared_ptr<const Quantization> quantization_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_LAYOUT_H_
