#include "common/weights/model_layout.h"

#include <array>
#include <set>

#include "common/model/parallel_fit.h"
#include "common/status/status_macros.h"

namespace tandem::weights {
namespace {

LogicalTensor TensorOf(const model::Segment& segment) {
  LogicalTensor tensor{segment.name, segment.global_shape[0], 1};
  for (size_t d = 1; d < segment.global_shape.size(); ++d)
    tensor.columns *= segment.global_shape[d];
  return tensor;
}

PartLayout PartOf(const model::ParameterTable& table) {
  PartLayout part;
  for (const model::Unit& unit : table.units()) {
    part.unit_elements.push_back(unit.numel);
    part.unit_of_experts.push_back(unit.of_experts);
  }
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const model::ParameterTable::SegmentRef ref = table.segments()[i];
    const model::Segment& segment = table.segment(ref);
    if (segment.numel == 0) continue;
    TensorBox box{.tensor = static_cast<int32_t>(i),
                  .first_row = segment.start[0],
                  .rows = segment.shape[0],
                  .columns = 1,
                  .unit = table.parameter(ref.parameter).unit,
                  .offset = segment.offset};
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

ModelLayout LayoutOf(absl::Span<const model::ParameterTable> tables) {
  ModelLayout layout;
  for (const model::ParameterTable::SegmentRef ref : tables[0].segments()) {
    layout.tensors.push_back(TensorOf(tables[0].segment(ref)));
  }
  for (const model::ParameterTable& table : tables) layout.parts.push_back(PartOf(table));
  return layout;
}

absl::StatusOr<ModelLayout> LayoutOf(const model::ModelSpec& spec, const model::UnitLimits& limits,
                                     int tp, int ep) {
  RETURN_IF_ERROR(model::CheckTensorParallel(spec, tp, model::KvHeadCopies::kAllowed));
  RETURN_IF_ERROR(model::CheckExpertParallel(spec, limits, ep));
  std::vector<model::ParameterTable> tables;
  for (int e = 0; e < ep; ++e) {
    for (int t = 0; t < tp; ++t) {
      tables.emplace_back(spec, limits, model::TensorParallel{t, tp}, model::ExpertParallel{e, ep});
    }
  }
  return LayoutOf(tables);
}

}  // namespace tandem::weights
