#include "common/model/parameter_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/frozen_parameters.h"

namespace tandem::model {

ParameterTable::ParameterTable(const ModelSpec& spec, const UnitLimits& limits,
                               TensorParallel parallel, ExpertParallel experts)
    : spec_(spec),
      limits_(limits),
      parallel_(parallel),
      experts_(experts),
      tied_(spec.tie_word_embeddings) {
  DeclareAll(spec);
  ListStages();
  FormUnits();
}

int ParameterTable::Add(Parameter parameter) {
  const int index = static_cast<int>(parameters_.size());
  for (size_t i = 0; i < parameter.segments.size(); ++i) {
    segment_order_.push_back({index, static_cast<int>(i)});
  }
  if (declares_vision_) {
    parameter.group = "vision";
    // Every tensor-parallel rank has the whole tower.
    parameter.tensor_parallel = kReplicate;
    parameter.trainable = parameter.trainable && limits_.trains_vision && !declares_unread_;
  }
  const bool is_frozen = IsFrozen(parameter, limits_.frozen_parameters);
  parameter.trainable = parameter.trainable && !is_frozen;
  trains_vision_ |= declares_vision_ && parameter.trainable;
  parameter.moved = limits_.moves_correction_biases && parameter.corrects_router && !is_frozen;
  has_frozen_ |= !parameter.trainable;
  num_parameters_ += parameter.numel;
  units_.back().parameters.push_back(index);
  parameters_.push_back(std::move(parameter));
  return index;
}

void ParameterTable::DeclareAll(const ModelSpec& spec) {
  const Range vocabulary = PartOf(spec.vocab_size, parallel_);
  if (spec.vision.has_value()) DeclareVision(*spec.vision, spec.hidden_size);
  BeginUnit("embed");
  DeclareEmbedding(spec, vocabulary);
  if (spec.layer_inputs.has_value()) {
    BeginUnit("embed.layer_inputs");
    DeclareLayerInputs(*spec.layer_inputs, spec.hidden_size, spec.num_layers());
  }
  for (const LayerSpec& layer : spec.layers) {
    BeginUnit(absl::StrCat("layers.", layers_.size()));
    layers_.push_back(DeclareLayer(layer, spec.hidden_size,
                                   absl::StrCat("model.layers.", layers_.size(), "."), parallel_));
  }
  BeginUnit("head");
  DeclareHead(spec, vocabulary);
}

void ParameterTable::DeclareEmbedding(const ModelSpec& spec, Range vocabulary) {
  const int64_t hidden = spec.hidden_size;
  embedding_ = Add(Single(Rows("model.embed_tokens.weight", {spec.vocab_size, hidden}, vocabulary),
                          ParameterRole::kEmbedding, kShardRows));
  if (const auto& positions = spec.position_embedding; positions.has_value()) {
    position_embedding_ = Add(Single(Whole("model.embed_positions.weight",
                                           {positions->num_positions + positions->offset, hidden}),
                                     ParameterRole::kEmbedding, kReplicate));
  }
  if (spec.embedding_norm.has_value()) {
    embedding_norm_ = DeclareNorm(*spec.embedding_norm, hidden, "model.embed_norm.", *this);
  }
}

void ParameterTable::DeclareLayerInputs(const LayerInputSpec& spec, int64_t hidden_size,
                                        int64_t num_layers) {
  const int64_t size = num_layers * spec.size;
  layer_inputs_.table =
      Add(Single(Rows("model.embed_tokens_per_layer.weight", {spec.vocab_size, size},
                      PartOf(spec.vocab_size, parallel_)),
                 ParameterRole::kEmbedding, kShardRows));
  layer_inputs_.projection =
      Add(Single(Whole("model.per_layer_model_projection.weight", {size, hidden_size}),
                 ParameterRole::kMatrix, kReplicate));
  layer_inputs_.norm = DeclareNorm(spec.norm, spec.size, "model.per_layer_projection_norm.", *this);
}

void ParameterTable::DeclareVision(const VisionSpec& spec, int64_t hidden_size) {
  declares_vision_ = true;
  BeginUnit("vision.patches");
  vision_.patch_weight =
      Add(Single(Whole("visual.patch_embed.proj.weight", {spec.hidden_size, spec.patch_elements()}),
                 ParameterRole::kMatrix, kReplicate));
  if (spec.patch_bias) {
    vision_.patch_bias = Add(Single(Whole("visual.patch_embed.proj.bias", {spec.hidden_size}),
                                    ParameterRole::kBias, kReplicate));
  }
  if (spec.position_grid > 0) {
    vision_.positions =
        Add(Single(Whole("visual.pos_embed.weight",
                         {spec.position_grid * spec.position_grid, spec.hidden_size}),
                   ParameterRole::kEmbedding, kReplicate));
  }
  if (spec.tiles.has_value()) DeclareTileEmbedding(spec);
  if (spec.first_norm.has_value()) {
    vision_.first_norm = DeclareNorm(*spec.first_norm, spec.hidden_size, "visual.pre_norm.", *this);
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    BeginUnit(absl::StrCat("vision.layers.", i));
    declares_unread_ =
        spec.tiles.has_value() && static_cast<int64_t>(i) >= spec.tiles->num_read_layers;
    vision_.layers.push_back(
        DeclareLayer(spec.layers[i], spec.hidden_size, absl::StrCat("visual.blocks.", i, "."), {}));
    const size_t next = vision_.deepstack.size();
    if (next == spec.deepstack_layers.size()) continue;
    if (spec.deepstack_layers[next] != static_cast<int64_t>(i)) continue;
    BeginUnit(absl::StrCat("vision.deepstack.", next));
    vision_.deepstack.push_back(
        DeclareMerger(spec, spec.merged_size(), hidden_size,
                      absl::StrCat("visual.deepstack_merger_list.", next, ".")));
  }
  declares_unread_ = false;
  if (spec.tiles.has_value()) DeclareUnread(*spec.tiles);
  BeginUnit("vision.merger");
  if (spec.last_norm.has_value()) {
    vision_.last_norm =
        DeclareNorm(*spec.last_norm, spec.hidden_size, "visual.post_layernorm.", *this);
  }
  vision_.merger = DeclareMerger(spec, spec.merger_norm_size(), hidden_size, "visual.merger.");
  if (spec.has_canvas()) {
    vision_.newline =
        Add(Single(Whole("visual.newline", {hidden_size}), ParameterRole::kEmbedding, kReplicate));
  }
  declares_vision_ = false;
}

void ParameterTable::DeclareTileEmbedding(const VisionSpec& spec) {
  const TileSpec& tiles = *spec.tiles;
  const int64_t hidden = spec.hidden_size;
  const auto add = [this](const char* name, std::vector<int64_t> shape) {
    return Add(Single(Whole(name, std::move(shape)), ParameterRole::kEmbedding, kReplicate));
  };
  if (tiles.class_token) {
    vision_.class_token =
        add("visual.class_token",
            tiles.class_token_is_row ? std::vector<int64_t>{1, hidden} : std::vector{hidden});
  }
  vision_.positions = add("visual.pos_embed.weight", {tiles.tokens(), hidden});
}

void ParameterTable::DeclareUnread(const TileSpec& tiles) {
  declares_unread_ = true;
  for (const UnreadTensor& tensor : tiles.unread) {
    Add(Single(Whole(tensor.name, tensor.shape), ParameterRole::kEmbedding, kReplicate));
  }
  declares_unread_ = false;
}

MergerParameters ParameterTable::DeclareMerger(const VisionSpec& spec, int64_t norm_size,
                                               int64_t hidden_size, const std::string& prefix) {
  const int64_t width =
      spec.merger_is_matrix ? spec.merger_input_size() : spec.merger_width(hidden_size);
  const auto add = [&](const char* name, std::vector<int64_t> shape, ParameterRole role) {
    return Add(Single(Whole(prefix + name, std::move(shape)), role, kReplicate));
  };
  MergerParameters at;
  if (spec.merger_norm.has_value()) {
    at.norm = DeclareNorm(*spec.merger_norm, norm_size, prefix + "norm.", *this);
  }
  if (spec.reduces_patches) {
    at.reduce_weight =
        add("reduce_proj.weight", {spec.hidden_size, spec.merged_size()}, ParameterRole::kMatrix);
  }
  if (!spec.merger_is_matrix) {
    at.up_weight = add("up_proj.weight", {width, spec.merger_input_size()}, ParameterRole::kMatrix);
    if (spec.merger_bias) at.up_bias = add("up_proj.bias", {width}, ParameterRole::kBias);
  }
  at.down_weight = add("down_proj.weight", {hidden_size, width}, ParameterRole::kMatrix);
  if (spec.merger_bias) at.down_bias = add("down_proj.bias", {hidden_size}, ParameterRole::kBias);
  return at;
}

LayerParameters ParameterTable::DeclareLayer(const LayerSpec& spec, int64_t hidden_size,
                                             const std::string& prefix, TensorParallel parallel) {
  const bool before = spec.norm_placement != NormPlacement::kAfter;
  const bool after = spec.norm_placement != NormPlacement::kBefore;
  const auto norm = [&](bool has, const char* name) {
    return has ? DeclareNorm(spec.norm, hidden_size, prefix + name, *this) : NormParameters();
  };
  LayerParameters at;
  at.attention_norm = norm(before, "input_layernorm.");
  at.attention = DeclareAttention(spec.attention, hidden_size, prefix, parallel, *this);
  at.after_attention_norm = norm(after, "post_self_attn_layernorm.");
  const bool shares = spec.parallel && spec.shared_norm;
  at.feed_forward_norm = norm(before && !shares, "post_attention_layernorm.");
  if (spec.has_dense()) {
    at.feed_forward =
        DeclareFeedForward(spec.feed_forward, hidden_size, prefix + "mlp.", parallel, *this);
  }
  if (spec.experts.has_value()) {
    const bool beside = spec.experts->beside_dense;
    at.beside.after_dense = norm(beside, "post_feedforward_layernorm_1.");
    at.beside.before_experts = norm(beside, "pre_feedforward_layernorm_2.");
    at.experts = DeclareExperts(*spec.experts, hidden_size, prefix, parallel, experts_, *this);
    at.beside.after_experts = norm(beside, "post_feedforward_layernorm_2.");
  }
  at.after_feed_forward_norm = norm(after, "post_mlp_layernorm.");
  if (spec.residual_scales) {
    const auto scale = [&](const char* name) {
      return Add(Single(Whole(prefix + name, {hidden_size}), ParameterRole::kNorm, kReplicate));
    };
    at.attention_scale = scale("attention_scale");
    at.feed_forward_scale = scale("feed_forward_scale");
  }
  if (spec.input_gate.has_value()) {
    const auto matrix = [&](const char* name, std::vector<int64_t> shape) {
      return Add(
          Single(Whole(prefix + name, std::move(shape)), ParameterRole::kMatrix, kReplicate));
    };
    const int64_t size = spec.input_gate->size;
    at.input_gate.gate_weight = matrix("per_layer_input_gate.weight", {size, hidden_size});
    at.input_gate.projection_weight = matrix("per_layer_projection.weight", {hidden_size, size});
    at.input_gate.norm = norm(true, "post_per_layer_input_norm.");
  }
  if (spec.output_scalar) {
    Segment scalar = Whole(prefix + "layer_scalar", {1});
    scalar.initial_value = 1.0f;
    Parameter parameter = Single(std::move(scalar), ParameterRole::kScalar, kReplicate);
    parameter.trainable = false;
    at.output_scalar = Add(std::move(parameter));
  }
  return at;
}

void ParameterTable::DeclareHead(const ModelSpec& spec, Range vocabulary) {
  const int64_t hidden = spec.hidden_size;
  if (spec.final_norm.has_value()) {
    final_norm_ = DeclareNorm(*spec.final_norm, hidden, "model.norm.", *this);
  }
  if (spec.value_head) {
    value_head_ =
        Add(Single(Whole("score.weight", {1, hidden}), ParameterRole::kValueHead, kReplicate));
    if (spec.head_bias) {
      value_head_bias_ = Add(Single(Whole("score.bias", {1}), ParameterRole::kBias, kReplicate));
    }
    return;
  }
  if (tied_) {
    lm_head_ = embedding_;
  } else {
    lm_head_ = Add(Single(Rows("lm_head.weight", {spec.vocab_size, hidden}, vocabulary),
                          ParameterRole::kMatrix, kShardRows));
  }
  if (spec.head_bias) {
    lm_head_bias_ = Add(Single(Rows("lm_head.bias", {spec.vocab_size}, vocabulary),
                               ParameterRole::kBias, kShardRows));
  }
}

void ParameterTable::ListStages() {
  // The tower's units, the embedding and the layers' inputs are one stage.
  const size_t num_vision = spec_.vision.has_value() ? spec_.vision->layers.size() +
                                                           spec_.vision->deepstack_layers.size() + 2
                                                     : 0;
  const size_t last_of_first = num_vision + (spec_.layer_inputs.has_value() ? 1 : 0);
  for (size_t u = 0; u < units_.size(); ++u) {
    if (u == 0 || u > last_of_first) stages_.emplace_back();
    std::vector<int>& parameters = stages_.back().parameters;
    parameters.insert(parameters.end(), units_[u].parameters.begin(), units_[u].parameters.end());
  }
  if (tied_) stages_.back().parameters.push_back(embedding_);
}

// Sizes are an even share of the logical tensors. They are the same on every rank of a split model,
// so all ranks form the same units although their parts differ.
int64_t ParameterTable::EvenShare(int index) const {
  const Parameter& parameter = parameters_[index];
  const bool elsewhere = parameter.of_expert && parameter.numel == 0;
  if (elsewhere || parameter.tensor_parallel.kind == Placement::Kind::kReplicate) {
    return parameter.numel;
  }
  int64_t logical = 0;
  for (const Segment& segment : parameter.segments) logical += NumElements(segment.global_shape);
  return (logical + parallel_.size - 1) / parallel_.size;
}

void ParameterTable::FormUnits() {
  std::vector<UnitPiece> pieces;
  for (const Unit& stage : units_) SplitStage(stage, pieces);
  MergePieces(std::move(pieces));
  AssignOffsets();
  ListUnitsOfStages();
}

void ParameterTable::SplitStage(const Unit& stage, std::vector<UnitPiece>& pieces) const {
  for (const bool of_experts : {false, true}) {
    for (const auto& [trainable, moved] : {std::pair(true, false), {false, true}, {false, false}}) {
      for (const bool in_float32 : {false, true}) {
        SplitKind(stage, {stage.name, {}, 0, trainable, moved, in_float32, of_experts}, pieces);
      }
    }
  }
}

void ParameterTable::SplitKind(const Unit& stage, const Unit& kind,
                               std::vector<UnitPiece>& pieces) const {
  Unit whole = kind;
  for (const int index : stage.parameters) {
    const Parameter& parameter = parameters_[index];
    const bool of_experts = parameter.of_expert && experts_.size > 1;
    if (parameter.trainable != kind.trainable || parameter.moved != kind.moved ||
        parameter.in_float32 != kind.in_float32 || of_experts != kind.of_experts) {
      continue;
    }
    whole.parameters.push_back(index);
    whole.numel += EvenShare(index);
  }
  if (whole.parameters.empty()) return;
  if (limits_.max_elements == 0 || whole.numel <= limits_.max_elements) {
    pieces.push_back({std::move(whole), true});
    return;
  }
  std::vector<Unit> parts;
  for (const int index : whole.parameters) {
    const int64_t numel = EvenShare(index);
    // Experts of other ranks, of which this one has nothing, begin no part: wherever a rank's own
    // ones are in the list, its parts then have the sizes of every other rank's.
    const bool begins = parts.empty() || (numel > 0 && parts.back().numel > 0 &&
                                          parts.back().numel + numel > limits_.max_elements);
    if (begins) {
      parts.push_back(kind);
      parts.back().name = "";
    }
    parts.back().parameters.push_back(index);
    parts.back().numel += numel;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].name = parts.size() == 1 ? stage.name : absl::StrCat(stage.name, "/", i);
    pieces.push_back({std::move(parts[i]), parts.size() == 1});
  }
}

void ParameterTable::MergePieces(std::vector<UnitPiece> pieces) {
  // The last unit of each kind, as long as it may grow; -1: none.
  struct Open {
    int unit = -1;
    std::string first_name;
  };
  std::array<Open, 12> open_units;
  units_.clear();
  for (UnitPiece& piece : pieces) {
    const int kind = piece.unit.trainable ? 0 : piece.unit.moved ? 2 : 1;
    Open& open =
        open_units[kind + (piece.unit.of_experts ? 3 : 0) + (piece.unit.in_float32 ? 6 : 0)];
    const bool alone = !piece.may_merge || (tied_ && piece.unit.parameters.front() == embedding_);
    const auto group = [this](const Unit& unit) {
      return parameters_[unit.parameters.front()].group;
    };
    const bool joins = open.unit >= 0 && !alone && group(units_[open.unit]) == group(piece.unit) &&
                       units_[open.unit].numel < limits_.min_elements &&
                       (limits_.max_elements == 0 ||
                        units_[open.unit].numel + piece.unit.numel <= limits_.max_elements);
    if (joins) {
      Unit& unit = units_[open.unit];
      unit.numel += piece.unit.numel;
      unit.name = absl::StrCat(open.first_name, "-", piece.unit.name);
      unit.parameters.insert(unit.parameters.end(), piece.unit.parameters.begin(),
                             piece.unit.parameters.end());
      continue;
    }
    open.unit = alone ? -1 : static_cast<int>(units_.size());
    open.first_name = piece.unit.name;
    units_.push_back(std::move(piece.unit));
  }
  for (Unit& unit : units_) {
    if (unit.of_experts) absl::StrAppend(&unit.name, "/experts");
    if (unit.in_float32) absl::StrAppend(&unit.name, "/float32");
    if (!unit.trainable) absl::StrAppend(&unit.name, unit.moved ? "/moved" : "/frozen");
  }
}

void ParameterTable::AssignOffsets() {
  for (size_t u = 0; u < units_.size(); ++u) {
    int64_t offset = 0;
    for (const int index : units_[u].parameters) {
      Parameter& parameter = parameters_[index];
      parameter.unit = static_cast<int>(u);
      parameter.offset = offset;
      for (Segment& segment : parameter.segments) {
        segment.offset = offset;
        offset += segment.numel;
      }
    }
    units_[u].numel = offset;
  }
}

void ParameterTable::ListUnitsOfStages() {
  first_stage_.assign(units_.size(), num_stages());
  first_trainable_stage_ = num_stages();
  for (int s = 0; s < num_stages(); ++s) {
    Stage& stage = stages_[s];
    for (const int index : stage.parameters) {
      const int unit = parameters_[index].unit;
      first_stage_[unit] = std::min(first_stage_[unit], s);
      if (parameters_[index].trainable) {
        first_trainable_stage_ = std::min(first_trainable_stage_, s);
      }
      const bool listed =
          std::find(stage.units.begin(), stage.units.end(), unit) != stage.units.end();
      if (!listed) stage.units.push_back(unit);
    }
  }
}

std::string ParameterTable::AliasOf(const std::string& name) const {
  return tied_ && name == "lm_head.weight" ? parameters_[embedding_].name : "";
}

bool ParameterTable::IsMultipliedBy(int index) const {
  return parameters_[index].role == ParameterRole::kMatrix || index == lm_head_;
}

}  // namespace tandem::model
