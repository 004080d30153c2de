// ModelLayout: the logical tensors of a model in manifest order, and which box of each every
// tensor-parallel rank has, in which unit. Numbers only.
//
// It comes from the parameter tables of a dense model, or from a list of tensors with a rule each,
// which says what no table can yet: experts.
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

// A tensor as a matrix: its first dim, and the product of the others.
struct LogicalTensor {
  std::string name;
  int64_t rows = 1;
  int64_t columns = 1;

  int64_t elements() const { return rows * columns; }
};

// Of one tensor, what a tensor-parallel rank has, and where in its unit's flat buffer.
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

// One tensor-parallel rank. Boxes in manifest order; tensors of which it has nothing are left out.
struct PartLayout {
  std::vector<TensorBox> boxes;
  std::vector<int64_t> unit_elements;  // before padding
};

struct ModelLayout {
  std::vector<LogicalTensor> tensors;
  std::vector<PartLayout> parts;  // by tensor-parallel rank

  int tp() const { return static_cast<int>(parts.size()); }
  int64_t elements() const;
};

// By part and tensor: whether the part has a box of it that no part before it has. Boxes of two
// parts are the same or share nothing, so the boxes of which it is true are each element once.
std::vector<std::vector<bool>> FirstOfEachBox(const ModelLayout& layout);

// How a tensor of a list is laid over the tensor-parallel ranks.
struct TensorRule {
  enum class Split {
    kWhole,    // every rank has it
    kRows,     // `groups` equal groups of rows, rank r those of PartOf(groups, r)
    kColumns,  // likewise of columns
    kOwner,    // it is one of `groups` tensors (experts), and only the rank of `group` has it
  };
  std::string name;
  int64_t rows = 1;
  int64_t columns = 1;
  Split split = Split::kWhole;
  int64_t groups = 1;
  int64_t group = 0;
  int unit = 0;  // ascending along the list
};

// Of the tables of all tensor-parallel ranks of one model, in rank order.
ModelLayout LayoutOf(absl::Span<const model::ParameterTable> tables);

// Errors: those of CheckTensorParallel().
absl::StatusOr<ModelLayout> LayoutOf(const model::ModelSpec& spec, const model::UnitLimits& limits,
                                     int tp);

// INVALID_ARGUMENT where a tensor has fewer groups than there are ranks, or groups that do not
// divide it; it is named.
absl::StatusOr<ModelLayout> LayoutOf(absl::Span<const TensorRule> tensors, int tp);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_MODEL_LAYOUT_H_
