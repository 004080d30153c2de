#include "common/model/parameter_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

constexpr Placement kReplicate{Placement::Kind::kReplicate, 0};
constexpr Placement kShardRows{Placement::Kind::kShard, 0};
constexpr Placement kShardColumns{Placement::Kind::kShard, 1};

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

// The whole of a tensor.
Segment Whole(std::string name, std::vector<int64_t> shape) {
  Segment segment;
  segment.name = std::move(name);
  segment.global_shape = shape;
  segment.start.assign(shape.size(), 0);
  segment.numel = Product(shape);
  segment.shape = std::move(shape);
  return segment;
}

// Indices `part` of dim `dim`.
Segment Part(std::string name, std::vector<int64_t> shape, int dim, Range part) {
  Segment segment = Whole(std::move(name), std::move(shape));
  segment.start[dim] = part.begin;
  segment.shape[dim] = part.size();
  segment.numel = Product(segment.shape);
  return segment;
}

Segment Rows(std::string name, std::vector<int64_t> shape, Range part) {
  return Part(std::move(name), std::move(shape), 0, part);
}

// Segments stacked along dim 0; offsets are filled in when the parameter is added to its unit.
Parameter Stack(std::string name, std::vector<Segment> segments, Placement placement) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.shape = segments[0].shape;
  parameter.shape[0] = 0;
  for (Segment& segment : segments) {
    segment.row = parameter.shape[0];
    parameter.shape[0] += segment.shape[0];
  }
  parameter.segments = std::move(segments);
  parameter.numel = Product(parameter.shape);
  parameter.tensor_parallel = placement;
  return parameter;
}

Parameter Single(Segment segment, Placement placement) {
  std::string name = segment.name;
  return Stack(std::move(name), {std::move(segment)}, placement);
}

Parameter Norm(std::string name, int64_t size) {
  Parameter parameter = Single(Whole(std::move(name), {size}), kReplicate);
  parameter.is_norm = true;
  return parameter;
}

Parameter Bias(Parameter parameter) {
  parameter.is_bias = true;
  return parameter;
}

}  // namespace

int ParameterTable::Add(Unit& unit, Parameter parameter) {
  const int index = static_cast<int>(parameters_.size());
  parameter.unit = static_cast<int>(units_.size());
  parameter.offset = unit.numel;
  int64_t offset = parameter.offset;
  for (size_t i = 0; i < parameter.segments.size(); ++i) {
    parameter.segments[i].offset = offset;
    offset += parameter.segments[i].numel;
    segment_order_.push_back({index, static_cast<int>(i)});
  }
  unit.numel += parameter.numel;
  num_parameters_ += parameter.numel;
  unit.parameters.push_back(index);
  parameters_.push_back(std::move(parameter));
  return index;
}

ParameterTable::ParameterTable(const ModelSpec& spec, const UnitLimits& limits,
                               TensorParallel parallel)
    : limits_(limits), parallel_(parallel), tied_(spec.tie_word_embeddings) {
  const int64_t hidden = spec.hidden_size;
  const int64_t q = spec.q_size();
  const int64_t kv = spec.kv_size();
  const int64_t inner = spec.intermediate_size;
  const ModelPart part = PartOf(spec, parallel);
  const Range q_rows = {part.heads.begin * spec.head_dim, part.heads.end * spec.head_dim};
  const Range kv_rows = {part.kv_heads.begin * spec.head_dim, part.kv_heads.end * spec.head_dim};

  Unit embed{"embed"};
  embedding_ = Add(
      embed, Single(Rows("model.embed_tokens.weight", {spec.vocab_size, hidden}, part.vocabulary),
                    kShardRows));
  units_.push_back(std::move(embed));

  for (int64_t i = 0; i < spec.num_layers; ++i) {
    Unit unit{absl::StrCat("layers.", i)};
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    const std::string attention = layer + "self_attn.";
    const std::string mlp = layer + "mlp.";
    LayerParameters at;
    at.input_norm = Add(unit, Norm(layer + "input_layernorm.weight", hidden));
    at.qkv_weight = Add(unit, Stack(attention + "qkv_proj.weight",
                                    {Rows(attention + "q_proj.weight", {q, hidden}, q_rows),
                                     Rows(attention + "k_proj.weight", {kv, hidden}, kv_rows),
                                     Rows(attention + "v_proj.weight", {kv, hidden}, kv_rows)},
                                    kShardRows));
    if (spec.qkv_bias) {
      at.qkv_bias = Add(unit, Bias(Stack(attention + "qkv_proj.bias",
                                         {Rows(attention + "q_proj.bias", {q}, q_rows),
                                          Rows(attention + "k_proj.bias", {kv}, kv_rows),
                                          Rows(attention + "v_proj.bias", {kv}, kv_rows)},
                                         kShardRows)));
    }
    if (spec.qk_norm) {
      at.q_norm = Add(unit, Norm(attention + "q_norm.weight", spec.head_dim));
      at.k_norm = Add(unit, Norm(attention + "k_norm.weight", spec.head_dim));
    }
    at.o_weight =
        Add(unit, Single(Part(attention + "o_proj.weight", {hidden, q}, 1, q_rows), kShardColumns));
    if (spec.output_bias) {
      at.o_bias = Add(unit, Bias(Single(Whole(attention + "o_proj.bias", {hidden}), kReplicate)));
    }
    at.post_attention_norm = Add(unit, Norm(layer + "post_attention_layernorm.weight", hidden));
    at.gate_up_weight =
        Add(unit, Stack(mlp + "gate_up_proj.weight",
                        {Rows(mlp + "gate_proj.weight", {inner, hidden}, part.intermediate),
                         Rows(mlp + "up_proj.weight", {inner, hidden}, part.intermediate)},
                        kShardRows));
    if (spec.mlp_bias) {
      at.gate_up_bias =
          Add(unit, Bias(Stack(mlp + "gate_up_proj.bias",
                               {Rows(mlp + "gate_proj.bias", {inner}, part.intermediate),
                                Rows(mlp + "up_proj.bias", {inner}, part.intermediate)},
                               kShardRows)));
    }
    at.down_weight =
        Add(unit, Single(Part(mlp + "down_proj.weight", {hidden, inner}, 1, part.intermediate),
                         kShardColumns));
    if (spec.mlp_bias) {
      at.down_bias = Add(unit, Bias(Single(Whole(mlp + "down_proj.bias", {hidden}), kReplicate)));
    }
    layers_.push_back(at);
    units_.push_back(std::move(unit));
  }

  Unit head{"head"};
  final_norm_ = Add(head, Norm("model.norm.weight", hidden));
  if (spec.value_head) {
    value_head_ = Add(head, Single(Whole("score.weight", {1, hidden}), kReplicate));
    value_head_bias_ = Add(head, Bias(Single(Whole("score.bias", {1}), kReplicate)));
  } else {
    lm_head_ =
        tied_ ? embedding_
              : Add(head, Single(Rows("lm_head.weight", {spec.vocab_size, hidden}, part.vocabulary),
                                 kShardRows));
  }
  units_.push_back(std::move(head));
  ListStages();
  FormUnits();
}

void ParameterTable::ListStages() {
  for (const Unit& unit : units_) stages_.push_back({unit.parameters, {}});
  if (tied_) stages_.back().parameters.push_back(embedding_);
}

void ParameterTable::FormUnits() {
  // Pieces of stages, none of which is split further.
  struct Piece {
    Unit unit;
    bool is_whole_stage;
  };
  std::vector<Piece> pieces;
  // Until offsets are given, sizes are an even share of the logical tensors, the same on every rank
  // of a split model, whose units are thus the same though their parts are not.
  const auto share = [&](int index) {
    const Parameter& parameter = parameters_[index];
    if (parameter.tensor_parallel.kind == Placement::Kind::kReplicate) return parameter.numel;
    int64_t logical = 0;
    for (const Segment& segment : parameter.segments) logical += Product(segment.global_shape);
    return (logical + parallel_.size - 1) / parallel_.size;
  };
  for (Unit& stage : units_) {
    stage.numel = 0;
    for (const int index : stage.parameters) stage.numel += share(index);
    const bool fits = limits_.max_elements == 0 || stage.numel <= limits_.max_elements;
    if (fits) {
      pieces.push_back({stage, true});
      continue;
    }
    std::vector<Unit> parts;
    for (const int index : stage.parameters) {
      const int64_t numel = share(index);
      if (parts.empty() || parts.back().numel + numel > limits_.max_elements) parts.emplace_back();
      parts.back().parameters.push_back(index);
      parts.back().numel += numel;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].name = parts.size() == 1 ? stage.name : absl::StrCat(stage.name, "/", i);
      pieces.push_back({std::move(parts[i]), parts.size() == 1});
    }
  }

  units_.clear();
  bool open = false;  // the last unit may take more
  std::string first_name;
  for (Piece& piece : pieces) {
    const bool alone =
        !piece.is_whole_stage || (tied_ && piece.unit.parameters.front() == embedding_);
    const bool joins = open && !alone && units_.back().numel < limits_.min_elements &&
                       (limits_.max_elements == 0 ||
                        units_.back().numel + piece.unit.numel <= limits_.max_elements);
    if (!joins) {
      first_name = piece.unit.name;
      units_.push_back(std::move(piece.unit));
    } else {
      Unit& unit = units_.back();
      unit.numel += piece.unit.numel;
      unit.name = absl::StrCat(first_name, "-", piece.unit.name);
      unit.parameters.insert(unit.parameters.end(), piece.unit.parameters.begin(),
                             piece.unit.parameters.end());
    }
    open = !alone;
  }

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
  first_stage_.assign(units_.size(), num_stages());
  for (int s = 0; s < num_stages(); ++s) {
    Stage& stage = stages_[s];
    for (const int index : stage.parameters) {
      const int unit = parameters_[index].unit;
      first_stage_[unit] = std::min(first_stage_[unit], s);
      if (stage.units.empty() || stage.units.back() != unit) stage.units.push_back(unit);
    }
  }
}

std::string ParameterTable::AliasOf(const std::string& name) const {
  return tied_ && name == "lm_head.weight" ? parameters_[embedding_].name : "";
}

bool ParameterTable::IsMultipliedBy(int index) const {
  if (parameters_[index].shape.size() != 2 || index == value_head_) return false;
  return index != embedding_ || index == lm_head_;
}

}  // namespace tandem::model
