#include "common/weights/model_layout.h"

#include <array>
#include <set>

#include "absl/strings/str_cat.h"
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
  for (const model::Unit& unit : table.units()) part.unit_elements.push_back(unit.numel);
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

absl::Status CheckRule(const TensorRule& rule, int tp) {
  using Split = TensorRule::Split;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", rule.name, " [", rule.rows, ", ",
                                                   rule.columns, "] over ", tp, " ranks: ", what));
  };
  if (rule.rows < 1 || rule.columns < 1) return wrong("expected positive sizes");
  if (rule.split == Split::kWhole) return absl::OkStatus();
  if (rule.groups < tp) {
    return wrong(absl::StrCat("it has ", rule.groups, " parts, but each rank needs at least one"));
  }
  if ((rule.split == Split::kRows && rule.rows % rule.groups != 0) ||
      (rule.split == Split::kColumns && rule.columns % rule.groups != 0)) {
    return wrong(absl::StrCat(rule.groups, " equal parts do not consist of whole rows or columns"));
  }
  if (rule.split == Split::kOwner && (rule.group < 0 || rule.group >= rule.groups)) {
    return wrong(absl::StrCat("it is number ", rule.group, " of ", rule.groups));
  }
  return absl::OkStatus();
}

// The rank's box of a tensor; empty if the rank holds no part of it.
TensorBox BoxOf(const TensorRule& rule, const model::TensorParallel& parallel) {
  TensorBox box{.rows = rule.rows, .columns = rule.columns, .unit = rule.unit};
  const model::Range groups = model::PartOf(rule.groups, parallel);
  switch (rule.split) {
    case TensorRule::Split::kWhole:
      break;
    case TensorRule::Split::kRows:
      box.first_row = rule.rows / rule.groups * groups.begin;
      box.rows = rule.rows / rule.groups * groups.size();
      break;
    case TensorRule::Split::kColumns:
      box.first_column = rule.columns / rule.groups * groups.begin;
      box.columns = rule.columns / rule.groups * groups.size();
      break;
    case TensorRule::Split::kOwner:
      if (rule.group < groups.begin || rule.group >= groups.end) box.rows = 0;
      break;
  }
  return box;
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
                                     int tp) {
  RETURN_IF_ERROR(model::CheckTensorParallel(spec, tp, model::KvHeadCopies::kAllowed));
  std::vector<model::ParameterTable> tables;
  for (int rank = 0; rank < tp; ++rank) {
    tables.emplace_back(spec, limits, model::TensorParallel{rank, tp});
  }
  return LayoutOf(tables);
}

absl::StatusOr<ModelLayout> LayoutOf(absl::Span<const TensorRule> tensors, int tp) {
  if (tp < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor parallelism: expected 1 or more ranks, found ", tp));
  }
  ModelLayout layout;
  layout.parts.resize(tp);
  for (const TensorRule& rule : tensors) {
    RETURN_IF_ERROR(CheckRule(rule, tp));
    for (int rank = 0; rank < tp; ++rank) {
      TensorBox box = BoxOf(rule, {rank, tp});
      PartLayout& part = layout.parts[rank];
      if (part.unit_elements.size() <= static_cast<size_t>(rule.unit)) {
        part.unit_elements.resize(rule.unit + 1);
      }
      if (box.elements() == 0) continue;
      box.tensor = static_cast<int32_t>(layout.tensors.size());
      box.offset = part.unit_elements[rule.unit];
      part.unit_elements[rule.unit] += box.elements();
      part.boxes.push_back(box);
    }
    layout.tensors.push_back({rule.name, rule.rows, rule.columns});
  }
  return layout;
}

}  // namespace tandem::weights
