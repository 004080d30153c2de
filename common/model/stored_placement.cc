#include "common/model/stored_placement.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/parameter.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// A rule that matches a parameter, with its numbers filled in.
struct Match {
  const StoredRule& rule;
  StoredNumbers numbers;
  const std::string& name;
  const std::vector<int64_t>& shape;

  std::string tensor() const { return FillStoredName(rule.tensor, numbers); }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor(), ", which holds ", name, ": ", what));
  }
};

absl::StatusOr<const LayerSpec*> LayerOf(const ModelSpec& spec, const Match& match) {
  const int64_t layer = match.numbers.layer;
  if (layer < 0 || layer >= spec.num_layers()) {
    return match.Error("expected \"{layer}\" in the rule's name, of which heads or experts are");
  }
  return &spec.layers[static_cast<size_t>(layer)];
}

// Returns the number of blocks of rows, each of which has rows of every part.
absl::StatusOr<int64_t> NumBlocks(const ModelSpec& spec, const Match& match) {
  switch (match.rule.fusion) {
    case StoredFusion::kPerHead: {
      ASSIGN_OR_RETURN(const LayerSpec* layer, LayerOf(spec, match));
      return layer->attention.num_heads;
    }
    case StoredFusion::kPerGroup: {
      ASSIGN_OR_RETURN(const LayerSpec* layer, LayerOf(spec, match));
      const AttentionSpec& attention = layer->attention;
      return attention.delta.has_value() ? attention.delta->num_key_heads : attention.num_kv_heads;
    }
    case StoredFusion::kAlternating:
      return match.shape[0];
    case StoredFusion::kNone:
    case StoredFusion::kStacked:
      break;
  }
  return 1;
}

// A scalar has one row.
int64_t RowsOf(const std::vector<int64_t>& shape) { return shape.empty() ? 1 : shape[0]; }

// Whether the tensor holds all of the layer's experts.
bool HoldsExperts(const Match& match) {
  return match.numbers.expert >= 0 && !absl::StrContains(match.rule.tensor, "{expert}");
}

struct PartRows {
  int64_t before = 0;  // rows of a block before the parameter's
  int64_t own = 0;
  int64_t block = 0;  // rows of a block
};

// Returns how the parts share a block.
absl::StatusOr<PartRows> RowsInBlock(const Match& match, int64_t blocks, const ShapeOf& shape_of) {
  if (match.rule.fusion == StoredFusion::kNone) return PartRows{0, match.shape[0], match.shape[0]};
  PartRows rows;
  bool found = false;
  for (const std::string& part : match.rule.parts) {
    const std::string part_name = FillStoredName(part, match.numbers);
    const std::vector<int64_t>* const shape = shape_of(part_name);
    if (shape == nullptr) {
      return match.Error(absl::StrCat("its part ", part_name, " is no parameter of the model"));
    }
    if (shape->size() != match.shape.size() ||
        !std::equal(shape->begin() + 1, shape->end(), match.shape.begin() + 1, match.shape.end())) {
      return match.Error(absl::StrCat("its parts differ in more than their rows: [",
                                      absl::StrJoin(match.shape, ", "), "], but ", part_name, " [",
                                      absl::StrJoin(*shape, ", "), "]"));
    }
    const int64_t in_block = (*shape)[0] / blocks;
    if (in_block * blocks != (*shape)[0]) {
      return match.Error(absl::StrCat((*shape)[0], " rows of ", part_name, " do not split into ",
                                      blocks, " equal blocks"));
    }
    if (part_name == match.name) {
      found = true;
      rows.before = rows.block;
      rows.own = in_block;
    }
    rows.block += in_block;
  }
  if (!found) {
    return match.Error(
        absl::StrCat("it is not among the rule's parts: ", absl::StrJoin(match.rule.parts, ", ")));
  }
  const bool alike = match.rule.fusion == StoredFusion::kPerHead ||
                     match.rule.fusion == StoredFusion::kAlternating;
  if (alike && rows.block != rows.own * static_cast<int64_t>(match.rule.parts.size())) {
    return match.Error("its parts differ in their rows; only stacked ones and groups may");
  }
  return rows;
}

// Returns the number of experts in the tensor.
absl::StatusOr<int64_t> NumExperts(const ModelSpec& spec, const Match& match) {
  if (!HoldsExperts(match)) return 1;
  ASSIGN_OR_RETURN(const LayerSpec* layer, LayerOf(spec, match));
  if (!layer->experts.has_value() || match.numbers.expert >= layer->experts->num_experts) {
    return match.Error("the layer has no such expert");
  }
  return layer->experts->num_experts;
}

absl::StatusOr<StoredPlacement> PlaceInTensor(const ModelSpec& spec, const Match& match,
                                              const ShapeOf& shape_of) {
  const std::vector<int64_t>& shape = match.shape;
  if (shape.empty() || NumElements(shape) == 0) {
    return match.Error("a rule takes a parameter with rows, neither a scalar nor an empty one");
  }
  const bool transposed = match.rule.transposed && shape.size() > 1;
  if (transposed && shape.size() != 2) {
    return match.Error(absl::StrCat("only matrices are stored transposed, found [",
                                    absl::StrJoin(shape, ", "), "]"));
  }
  ASSIGN_OR_RETURN(const int64_t blocks, NumBlocks(spec, match));
  if (blocks < 1) return match.Error("the layer has no heads to split its rows by");
  ASSIGN_OR_RETURN(const PartRows part, RowsInBlock(match, blocks, shape_of));
  ASSIGN_OR_RETURN(const int64_t num_experts, NumExperts(spec, match));
  const int64_t skip = match.rule.skip_rows;
  const int64_t rows = skip + blocks * part.block;
  const int64_t columns = NumElements(shape) / shape[0];
  const int64_t row_stride = transposed ? 1 : columns;
  const int64_t expert = HoldsExperts(match) ? match.numbers.expert : 0;

  StoredPlacement placement;
  StoredView& view = placement.view;
  view.tensor = match.tensor();
  view.tensor_shape = shape;
  view.tensor_shape[0] = rows;
  if (!match.rule.columns.empty()) {
    if (transposed || NumElements(match.rule.columns) != columns) {
      return match.Error(absl::StrCat("expected columns of [",
                                      absl::StrJoin(match.rule.columns, ", "),
                                      "], not transposed, found ", columns, " of them"));
    }
    view.tensor_shape.resize(1);
    view.tensor_shape.insert(view.tensor_shape.end(), match.rule.columns.begin(),
                             match.rule.columns.end());
  }
  if (transposed) std::reverse(view.tensor_shape.begin(), view.tensor_shape.end());
  if (HoldsExperts(match)) {
    view.tensor_shape.insert(view.tensor_shape.begin(), num_experts);
  }
  if (match.rule.leading_one) view.tensor_shape.insert(view.tensor_shape.begin(), 1);
  view.offset = expert * rows * columns + (skip + part.before) * row_stride;
  view.sizes = {blocks, part.own, columns};
  view.strides = {part.block * row_stride, row_stride, transposed ? rows : 1};
  Simplify(view);
  placement.rows = {expert * rows + skip + part.before, part.own, part.block, blocks};
  placement.num_rows = num_experts * rows;
  placement.skip_rows = skip;
  placement.num_experts = num_experts;
  return placement;
}

// Whether the folder has the tensor, and in another shape than the placement's.
bool DiffersFrom(const StoredPlacement& placement, const io::ModelFolder& folder) {
  const absl::StatusOr<io::TensorView> stored = folder.Find(placement.view.tensor);
  return stored.ok() && stored->shape != placement.view.tensor_shape;
}

// The placement by the rule, or by the rule with `transposed` turned over if the folder has the tensor so.
absl::StatusOr<StoredPlacement> PlaceEitherWay(const ModelSpec& spec, const Match& match,
                                               const ShapeOf& shape_of,
                                               const io::ModelFolder* folder) {
  ASSIGN_OR_RETURN(StoredPlacement placement, PlaceInTensor(spec, match, shape_of));
  if (!match.rule.either_way || folder == nullptr || !DiffersFrom(placement, *folder)) {
    return placement;
  }
  StoredRule turned = match.rule;
  turned.transposed = !turned.transposed;
  ASSIGN_OR_RETURN(StoredPlacement other,
                   PlaceInTensor(spec, {turned, match.numbers, match.name, match.shape}, shape_of));
  return DiffersFrom(other, *folder) ? placement : other;
}

// A tensor for each row of the parameter.
absl::StatusOr<std::vector<StoredPlacement>> PlaceHeads(const ModelSpec& spec, Match match) {
  const StoredRule& rule = match.rule;
  if (rule.fusion != StoredFusion::kNone || rule.transposed || rule.leading_one ||
      rule.skip_rows != 0 || match.shape.size() < 2) {
    return match.Error(
        "a rule with \"{head}\" takes a parameter [heads, head_dim], neither fused nor transposed");
  }
  // The shape may be of a damaged checkpoint, and each row becomes a tensor.
  if (match.numbers.layer >= 0) {
    RETURN_IF_ERROR(LayerOf(spec, match).status());
  }
  int64_t max_heads = 0;
  for (const LayerSpec& layer : spec.layers) {
    max_heads = std::max({max_heads, layer.attention.num_heads, layer.attention.num_kv_heads});
  }
  if (match.shape[0] > max_heads) {
    return match.Error(absl::StrCat("expected a row for each head, at most ", max_heads, ", found ",
                                    match.shape[0]));
  }
  const std::vector<int64_t> shape(match.shape.begin() + 1, match.shape.end());
  const int64_t numel = NumElements(shape);
  std::vector<StoredPlacement> placements;
  for (int64_t head = 0; head < match.shape[0]; ++head) {
    match.numbers.head = head;
    StoredPlacement& placement = placements.emplace_back();
    placement.view = {match.tensor(), shape, head * numel, 0, {numel}, {1}};
    placement.rows = {0, shape[0], shape[0], 1};
    placement.num_rows = shape[0];
  }
  return placements;
}

}  // namespace

absl::StatusOr<std::vector<StoredPlacement>> PlaceParameter(const ModelSpec& spec,
                                                            const std::string& name,
                                                            const std::vector<int64_t>& shape,
                                                            const ShapeOf& shape_of,
                                                            const io::ModelFolder* folder) {
  for (const StoredRule& rule : spec.stored_rules) {
    const std::optional<StoredNumbers> numbers = MatchStoredName(rule.name, name);
    if (!numbers.has_value()) continue;
    if (rule.either_way && folder != nullptr &&
        !folder->Contains(FillStoredName(rule.tensor, *numbers))) {
      continue;  // this folder has it elsewhere
    }
    const Match match{rule, *numbers, name, shape};
    if (absl::StrContains(rule.tensor, "{head}")) return PlaceHeads(spec, match);
    ASSIGN_OR_RETURN(StoredPlacement placement, PlaceEitherWay(spec, match, shape_of, folder));
    return std::vector<StoredPlacement>{std::move(placement)};
  }
  StoredPlacement whole;
  whole.view = {name, shape, 0, 0, {NumElements(shape)}, {1}};
  whole.num_rows = RowsOf(shape);
  whole.rows = {0, whole.num_rows, whole.num_rows, 1};
  return std::vector<StoredPlacement>{std::move(whole)};
}

}  // namespace tandem::model
