#include "common/model/parameter_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

Parameter Norm(std::string name, int64_t size) {
  return Single(Whole(std::move(name), {size}), ParameterRole::kNorm, kReplicate);
}

}  // namespace

ParameterTable::ParameterTable(const ModelSpec& spec, const UnitLimits& limits,
                               TensorParallel parallel)
    : limits_(limits), parallel_(parallel), tied_(spec.tie_word_embeddings) {
  DeclareAll(spec);
  ListStages();
  FormUnits();
}

int ParameterTable::Add(Parameter parameter) {
  const int index = static_cast<int>(parameters_.size());
  for (size_t i = 0; i < parameter.segments.size(); ++i) {
    segment_order_.push_back({index, static_cast<int>(i)});
  }
  num_parameters_ += parameter.numel;
  units_.back().parameters.push_back(index);
  parameters_.push_back(std::move(parameter));
  return index;
}

void ParameterTable::DeclareAll(const ModelSpec& spec) {
  const int64_t hidden = spec.hidden_size;
  const Range vocabulary = PartOf(spec.vocab_size, parallel_);
  BeginUnit("embed");
  embedding_ = Add(Single(Rows("model.embed_tokens.weight", {spec.vocab_size, hidden}, vocabulary),
                          ParameterRole::kEmbedding, kShardRows));
  for (const LayerSpec& layer : spec.layers) {
    const size_t i = layers_.size();
    BeginUnit(absl::StrCat("layers.", i));
    const std::string prefix = absl::StrCat("model.layers.", i, ".");
    LayerParameters at;
    at.attention_norm = Add(Norm(prefix + "input_layernorm.weight", hidden));
    at.attention = DeclareAttention(layer.attention, hidden, prefix, parallel_, *this);
    at.feed_forward_norm = Add(Norm(prefix + "post_attention_layernorm.weight", hidden));
    at.feed_forward = DeclareFeedForward(layer.feed_forward, hidden, prefix, parallel_, *this);
    layers_.push_back(at);
  }
  BeginUnit("head");
  final_norm_ = Add(Norm("model.norm.weight", hidden));
  if (spec.value_head) {
    value_head_ =
        Add(Single(Whole("score.weight", {1, hidden}), ParameterRole::kValueHead, kReplicate));
    value_head_bias_ = Add(Single(Whole("score.bias", {1}), ParameterRole::kBias, kReplicate));
  } else if (tied_) {
    lm_head_ = embedding_;
  } else {
    lm_head_ = Add(Single(Rows("lm_head.weight", {spec.vocab_size, hidden}, vocabulary),
                          ParameterRole::kMatrix, kShardRows));
  }
}

void ParameterTable::ListStages() {
  for (const Unit& unit : units_) stages_.push_back({unit.parameters, {}});
  if (tied_) stages_.back().parameters.push_back(embedding_);
}

void ParameterTable::FormUnits() {
  // Stages, or parts of stages that are too large.
  struct Piece {
    Unit unit;
    bool is_whole_stage;
  };
  std::vector<Piece> pieces;
  // Until offsets are assigned, sizes are an even share of the logical tensors. They are the same
  // on every rank of a split model, so all ranks form the same units although their parts differ.
  const auto share = [&](int index) {
    const Parameter& parameter = parameters_[index];
    if (parameter.tensor_parallel.kind == Placement::Kind::kReplicate) return parameter.numel;
    int64_t logical = 0;
    for (const Segment& segment : parameter.segments) logical += NumElements(segment.global_shape);
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
  bool open = false;  // the last unit may still grow
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
  return parameters_[index].role == ParameterRole::kMatrix || index == lm_head_;
}

}  // namespace tandem::model
