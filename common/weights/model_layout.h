// ModelLayout: a model's logical tensors in manifest order, and for every tensor-parallel rank its
// box of each tensor and the unit that holds it. Numbers only.
//
//   ASSIGN_OR_RETURN(ModelLayout trainer, LayoutOf(spec, unit_limits, /*tp=*/2));
//   ASSIGN_OR_RETURN(ModelLayout rollout, LayoutOf(spec, {}, /*tp=*/4));
#ifndef TANDEM_COMMON_WEIGHTS_MODEL_LAYOUT_H_
#define TANDEM_COMMON_WEIGHTS_MODEL_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"

namespace tandem::weights {

// What follows counts wire elements. A tensor that is in float32 in every model has two of them for each
// of its elements if the wire type has 2 bytes (LayoutForm::float32_elements).
//
// A tensor as a matrix: its first dim by the product of the others.
struct LogicalTensor {
  std::string name;
  int64_t rows = 1;
  int64_t columns = 1;

  int64_t elements() const { return rows * columns; }
};

// A tensor-parallel rank's part of one tensor, and its offset in the unit's flat buffer.
struct TensorBox {
  int32_t tensor = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t first_column = 0;
  int64_t columns = 0;
  int32_t unit = 0;
  int64_t offset = 0;

  int64_t elements() const { return rows * columns; }
};

// One tensor-parallel rank. Boxes in manifest order; omits tensors of which the rank has nothing.
struct PartLayout {
  std::vector<TensorBox> boxes;
  std::vector<int64_t> unit_elements;  // before padding
  std::vector<bool> unit_of_experts;   // as in model::Unit; empty: none is
  // Wire elements of a unit's element, which no rank's slice cuts; empty: 1.
  std::vector<int64_t> unit_grain;

  // Wire elements of one of `num_slices` equal slices of the unit.
  int64_t SliceOf(int32_t unit, int64_t num_slices) const {
    const int64_t grain = unit_grain.empty() ? 1 : unit_grain[unit];
    const int64_t whole = num_slices * grain;
    return (unit_elements[unit] + whole - 1) / whole * grain;
  }
};

struct ModelLayout {
  std::vector<LogicalTensor> tensors;
  // By tensor-parallel rank; of a trainer that splits experts, by expert-parallel rank before that.
  std::vector<PartLayout> parts;

  int tp() const { return static_cast<int>(parts.size()); }
  int64_t elements() const;
};

// By part and tensor: true if the part has a box of the tensor that no earlier part has. Boxes of
// two parts are identical or disjoint, so the boxes marked true cover each element once.
std::vector<std::vector<bool>> FirstOfEachBox(const ModelLayout& layout);

// How parts are formed besides their numbers.
struct LayoutForm {
  // Wire elements of an element in float32: 2 if the wire type has 2 bytes.
  int64_t float32_elements = 1;
  // Tensor-parallel ranks hold whole experts (ExpertParallel::of_tensor_ranks).
  bool whole_experts = false;
};

// Builds the layout from the tables of all tensor-parallel ranks, in rank order.
ModelLayout LayoutOf(absl::Span<const model::ParameterTable> tables, int64_t float32_elements = 1);

// Errors: those of CheckTensorParallel(), CheckExpertParallel() and CheckWholeExperts().
absl::StatusOr<ModelLayout> LayoutOf(const model::ModelSpec& spec, const model::UnitLimits& limits,
                                     int tp, int ep = 1, const LayoutForm& form = {});

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_MODEL_LAYOUT_H_
