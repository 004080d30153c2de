#include "common/weights/model_layout.h"

#include <array>
#include <set>

#include "common/model/parallel_fit.h"
#include "common/status/status_macros.h"

namespace tandem::weights {
namespace {

// Parameters in float32 are vectors: their rows are their elements.
LogicalTensor TensorOf(const model::Segment& segment, int64_t elements) {
  LogicalTensor tensor{segment.name, segment.global_shape[0] * elements, 1};
  for (size_t d = 1; d < segment.global_shape.size(); ++d)
    tensor.columns *= segment.global_shape[d];
  return tensor;
}

PartLayout PartOf(const model::ParameterTable& table, int64_t float32_elements) {
  PartLayout part;
  for (const model::Unit& unit : table.units()) {
    const int64_t grain = unit.in_float32 ? float32_elements : 1;
    part.unit_elements.push_back(unit.numel * grain);
    part.unit_of_experts.push_back(unit.of_experts);
    part.unit_grain.push_back(grain);
  }
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const model::ParameterTable::SegmentRef ref = table.segments()[i];
    const model::Segment& segment = table.segment(ref);
    if (segment.numel == 0) continue;
    const model::Parameter& parameter = table.parameter(ref.parameter);
    const int64_t elements = parameter.in_float32 ? float32_elements : 1;
    TensorBox box{.tensor = static_cast<int32_t>(i),
                  .first_row = segment.start[0] * elements,
                  .rows = segment.shape[0] * elements,
                  .columns = 1,
                  .unit = parameter.unit,
                  .offset = segment.offset * elements};
    for (size_t d = 1; d < segment.shape.size(); ++d) {
      box.first_column = box.first_column * segment.global_shape[d] + segment.start[d];
      box.columns *= segment.shape[d];
    }
    part.boxes.push_back(box);
  }
  return part;
}

}  // namespace

int64_t ModelLayout::elements() const {
  int64_t sum = 0;
  for (const LogicalTensor& tensor : tensors) sum += tensor.elements();
  return sum;
}

std::vector<std::vector<bool>> FirstOfEachBox(const ModelLayout& layout) {
  using Box = std::array<int64_t, 5>;
  std::set<Box> seen;
  std::vector<std::vector<bool>> first(layout.tp(),
                                       std::vector<bool>(layout.tensors.size(), false));
  for (int part = 0; part < layout.tp(); ++part) {
    for (const TensorBox& box : layout.parts[part].boxes) {
      const Box key = {box.tensor, box.first_row, box.rows, box.first_column, box.columns};
      first[part][box.tensor] = seen.insert(key).second;
    }
  }
  return first;
}

ModelLayout LayoutOf(absl::Span<const model::ParameterTable> tables, int64_t float32_elements) {
  ModelLayout layout;
  for (const model::ParameterTable::SegmentRef ref : tables[0].segments()) {
    const bool in_float32 = tables[0].parameter(ref.parameter).in_float32;
    layout.tensors.push_back(TensorOf(tables[0].segment(ref), in_float32 ? float32_elements : 1));
  }
  for (const model::ParameterTable& table : tables) {
    layout.parts.push_back(PartOf(table, float32_elements));
  }
  return layout;
}

absl::StatusOr<ModelLayout> LayoutOf(const model::ModelSpec& spec, const model::UnitLimits& limits,
                                     int tp, int ep, const LayoutForm& form) {
  RETURN_IF_ERROR(model::CheckTensorParallel(spec, tp, model::KvHeadCopies::kAllowed));
  RETURN_IF_ERROR(model::CheckExpertParallel(spec, limits, ep));
  std::vector<model::ParameterTable> tables;
  if (form.whole_experts && tp > 1) {
    RETURN_IF_ERROR(model::CheckWholeExperts(spec, tp));
    for (int t = 0; t < tp; ++t) {
      tables.emplace_back(spec, limits, model::TensorParallel{t, tp},
                          model::ExpertParallel{t, tp, /*of_tensor_ranks=*/true});
    }
    return LayoutOf(tables, form.float32_elements);
  }
  for (int e = 0; e < ep; ++e) {
    for (int t = 0; t < tp; ++t) {
      tables.emplace_back(spec, limits, model::TensorParallel{t, tp}, model::ExpertParallel{e, ep});
    }
  }
  return LayoutOf(tables, form.float32_elements);
}

}  // namespace tandem::weights
