#include "common/model/families/row_config.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/model/families/family_table.h"
#include "common/model/families/row_carried.h"
#include "common/model/families/row_experts.h"
#include "common/model/families/row_heads.h"
#include "common/model/families/row_layers.h"
#include "common/model/families/row_linear.h"
#include "common/model/families/row_overrides.h"
#include "common/model/families/row_value.h"
#include "common/model/families/row_vision.h"
#include "common/model/families/row_weights.h"
#include "common/model/quantization/quantization.h"
#include "common/model/stored_name.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// Whether config.json has the value with which a variant counts. Null is no value.
bool Counts(const v1::FamilyRow& variant, const RowValues& values) {
  const RowValues::Source source = values.At(variant.when());
  json found;
  if (source.Has()) {
    found = source.object.At(source.key.c_str());
  } else if (!variant.absent().empty()) {
    found = json::parse(variant.absent());
  } else {
    return false;
  }
  return found == (variant.is().empty() ? json(true) : json::parse(variant.is()));
}

// Of constants, those that a name stands for are numbers too.
absl::Status CheckRequirements(const v1::FamilyRow& row, const RowValues& values) {
  for (const v1::KeyRequirement& require : row.require()) {
    const RowValues::Source source = values.At(require.key());
    if (!source.Has()) continue;
    bool supported = false;
    std::vector<std::string> known;
    for (const std::string& text : require.values()) {
      const std::optional<double> number = values.Constant(text);
      json value = number.has_value() ? json(*number) : json::parse(text, nullptr, false);
      if (value.is_discarded()) value = text;  // a name
      supported |= source.object.At(source.key.c_str()) == value;
      known.push_back(value.dump());
    }
    if (!supported) {
      return source.object.Unsupported(source.key.c_str(), absl::StrJoin(known, ", "));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NormSpec> ParseNorm(const v1::FamilyRow& row, const RowValues& values) {
  NormSpec norm;
  norm.kind = row.norm() == v1::NORM_KIND_LAYER ? NormKind::kLayer : NormKind::kRms;
  ASSIGN_OR_RETURN(norm.eps, values.Positive(row.norm_eps(), norm.eps));
  ASSIGN_OR_RETURN(norm.weight, values.Flag(row.norm_weight(), true));
  ASSIGN_OR_RETURN(norm.bias, values.Flag(row.norm_bias(), false));
  ASSIGN_OR_RETURN(norm.unit_offset, values.Flag(row.norm_unit_offset(), false));
  return norm;
}

absl::Status ParseQkNorm(const v1::FamilyRow& row, const RowValues& values, const NormSpec& norm,
                         AttentionSpec& spec) {
  if (row.qk_norm() == v1::QK_NORM_UNSPECIFIED || row.qk_norm() == v1::QK_NORM_NONE) {
    return absl::OkStatus();
  }
  QkNormSpec& qk_norm = spec.qk_norm.emplace();
  qk_norm.over = row.qk_norm() == v1::QK_NORM_HEAD        ? QkNormSpec::Over::kHead
                 : row.qk_norm() == v1::QK_NORM_EACH_HEAD ? QkNormSpec::Over::kEachHead
                                                          : QkNormSpec::Over::kAllHeads;
  ASSIGN_OR_RETURN(qk_norm.after_rotation, values.Flag(row.qk_norm_after_rotation(), false));
  qk_norm.norm = norm;
  qk_norm.norm.bias = false;
  ASSIGN_OR_RETURN(qk_norm.norm.weight, values.Flag(row.qk_norm_weight(), norm.weight));
  return absl::OkStatus();
}

absl::Status ParseValueNorm(const v1::FamilyRow& row, const RowValues& values, const NormSpec& norm,
                            AttentionSpec& spec) {
  ASSIGN_OR_RETURN(const bool has_norm, values.Flag(row.value_norm(), false));
  if (!has_norm) return absl::OkStatus();
  spec.value_norm = NormSpec{.kind = norm.kind, .eps = norm.eps, .weight = false};
  return absl::OkStatus();
}

absl::Status ParseAttention(const v1::FamilyRow& row, const RowValues& values,
                            AttentionSpec& spec) {
  if (!spec.latent.has_value()) {
    ASSIGN_OR_RETURN(spec.qkv_bias, values.Flag(row.qkv_bias(), false));
  }
  ASSIGN_OR_RETURN(spec.output_bias, values.Flag(row.output_bias(), false));
  ASSIGN_OR_RETURN(spec.clip_qkv, values.Limit(row.clip_qkv()));
  ASSIGN_OR_RETURN(spec.scale, values.Positive(row.attention_scale(), 0.0));
  ASSIGN_OR_RETURN(spec.softcap, values.Limit(row.attention_softcap()));
  ASSIGN_OR_RETURN(spec.alibi_scale, values.Positive(row.alibi_scale(), 0.0));
  ASSIGN_OR_RETURN(spec.sinks, values.Flag(row.sinks(), false));
  if (!values.IsNull(row.attention_value_scale())) {
    ASSIGN_OR_RETURN(spec.value_scale, values.Positive(row.attention_value_scale(), 1.0));
  }
  ASSIGN_OR_RETURN(spec.output_gate, values.Flag(row.output_gate(), false));
  ASSIGN_OR_RETURN(spec.values_are_keys, values.Flag(row.values_are_keys(), false));
  return absl::OkStatus();
}

absl::Status ParseFeedForward(const v1::FamilyRow& row, const RowValues& values,
                              FeedForwardSpec& spec) {
  ASSIGN_OR_RETURN(spec.intermediate_size, values.Size(row.intermediate_size(), kMaxWidth));
  ASSIGN_OR_RETURN(spec.activation, values.ActivationOf(row.activation()));
  ASSIGN_OR_RETURN(spec.gated, values.Flag(row.gated(), true));
  ASSIGN_OR_RETURN(spec.bias, values.Flag(row.mlp_bias(), false));
  if (spec.gated && spec.activation == Activation::kXielu) {
    const RowValues::Source source = values.SourceOf(row.activation());
    return source.object.Unsupported(source.key.c_str(), "another one, as the layer has a gate");
  }
  if (!spec.gated && spec.activation == Activation::kClampedSwiglu) {
    const RowValues::Source source = values.SourceOf(row.activation());
    return source.object.Unsupported(source.key.c_str(), "another one, as the layer has no gate");
  }
  return absl::OkStatus();
}

// What all layers have, but for experts, windows and rotations.
absl::StatusOr<LayerSpec> ParseLayer(const v1::FamilyRow& row, int64_t num_layers,
                                     RowValues& values) {
  LayerSpec layer;
  RETURN_IF_ERROR(ParseHeads(row, values, layer.attention));
  RETURN_IF_ERROR(ParseAttention(row, values, layer.attention));
  RETURN_IF_ERROR(ParseFeedForward(row, values, layer.feed_forward));
  ASSIGN_OR_RETURN(layer.norm, ParseNorm(row, values));
  RETURN_IF_ERROR(ParseQkNorm(row, values, layer.norm, layer.attention));
  RETURN_IF_ERROR(ParseValueNorm(row, values, layer.norm, layer.attention));
  layer.norm_placement = row.norm_placement() == v1::NORM_PLACEMENT_AFTER ? NormPlacement::kAfter
                         : row.norm_placement() == v1::NORM_PLACEMENT_SANDWICH
                             ? NormPlacement::kSandwich
                             : NormPlacement::kBefore;
  ASSIGN_OR_RETURN(layer.parallel, values.Flag(row.parallel(), false));
  ASSIGN_OR_RETURN(layer.shared_norm, values.Flag(row.shared_norm(), false));
  ASSIGN_OR_RETURN(layer.residual_multiplier, values.Positive(row.residual_multiplier(), 1.0));
  ASSIGN_OR_RETURN(const bool by_depth, values.Flag(row.residual_by_depth(), false));
  if (by_depth) layer.residual_multiplier /= std::sqrt(static_cast<double>(num_layers));
  ASSIGN_OR_RETURN(layer.output_scalar, values.Flag(row.output_scalar(), false));
  return layer;
}

absl::Status ParseEnds(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  const NormSpec& norm = spec.layers.front().norm;
  ASSIGN_OR_RETURN(spec.initializer_range, values.Positive(row.initializer_range(), 0.02));
  ASSIGN_OR_RETURN(spec.embedding_multiplier, values.Positive(row.embedding_multiplier(), 1.0));
  ASSIGN_OR_RETURN(spec.embedding_multiplier_rounds,
                   values.Flag(row.embedding_multiplier_rounds(), false));
  // Not the number of a key: no config.json has one.
  const double offset =
      row.position_offset().empty() ? -1.0 : values.Constant(row.position_offset(0)).value_or(-1.0);
  if (offset >= 0 && offset <= kMaxPositions) {
    spec.position_embedding = {spec.max_position_embeddings, static_cast<int64_t>(offset)};
  }
  ASSIGN_OR_RETURN(const bool embedding_norm, values.Flag(row.embedding_norm(), false));
  if (embedding_norm) spec.embedding_norm = norm;
  spec.final_norm = norm;
  ASSIGN_OR_RETURN(spec.tie_word_embeddings, values.Flag(row.tie_word_embeddings(), false));
  ASSIGN_OR_RETURN(spec.head_bias, values.Flag(row.head_bias(), false));
  ASSIGN_OR_RETURN(spec.logit_scale, values.Positive(row.logit_scale(), 1.0));
  ASSIGN_OR_RETURN(const bool by_width, values.Flag(row.logit_by_width(), false));
  if (by_width) spec.logit_scale /= static_cast<double>(spec.hidden_size);
  ASSIGN_OR_RETURN(spec.logit_softcap, values.Limit(row.logit_softcap()));
  return absl::OkStatus();
}

// Adds patterns for the tensors of layers behind the last one.
absl::Status IgnoreExtraLayers(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  ASSIGN_OR_RETURN(const int64_t count, values.Count(row.extra_layers(), kMaxLayers, 0));
  for (int64_t i = 0; i < count; ++i) {
    spec.ignored_tensors.push_back(
        FillStoredName(LayerPrefixOf(row), {.layer = spec.num_layers() + i}) + "*");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSpec> ParseRow(const v1::FamilyRow& of_table, const ConfigReader& config) {
  RowValues values(config);
  v1::FamilyRow row = of_table;
  for (const v1::FamilyRow& variant : of_table.variants()) {
    if (Counts(variant, values)) PutOnto(variant, &row);
  }
  RETURN_IF_ERROR(ReadQuantization(config.object(), config.place()).status());
  ModelSpec spec;
  spec.architecture = row.architecture();
  ASSIGN_OR_RETURN(spec.vocab_size, values.Size(row.vocab_size(), kMaxVocab));
  ASSIGN_OR_RETURN(spec.hidden_size, values.Size(row.hidden_size(), kMaxWidth));
  values.sizes.hidden = spec.hidden_size;
  RETURN_IF_ERROR(CheckRequirements(row, values));
  ASSIGN_OR_RETURN(const int64_t num_layers, values.Size(row.num_layers(), kMaxLayers));
  ASSIGN_OR_RETURN(spec.max_position_embeddings, values.Size(row.max_positions(), kMaxPositions));
  ASSIGN_OR_RETURN(const LayerSpec layer, ParseLayer(row, num_layers, values));
  spec.layers.assign(static_cast<size_t>(num_layers), layer);
  RETURN_IF_ERROR(ParseEnds(row, values, spec));
  RETURN_IF_ERROR(ParseLinearAttention(row, values, spec));
  RETURN_IF_ERROR(ParseWindows(row, values, spec));
  RETURN_IF_ERROR(ParseWindowedHeads(row, values, spec));
  RETURN_IF_ERROR(ParseLayerOverrides(row, values, spec));
  RETURN_IF_ERROR(ParseRopes(row, values, spec));
  ASSIGN_OR_RETURN(const bool scale_by_layer, values.Flag(row.scale_by_layer(), false));
  for (size_t i = 0; i < spec.layers.size() && scale_by_layer; ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.scale = attention.ScoreScale() / static_cast<double>(i + 1);
  }
  ASSIGN_OR_RETURN(spec.eos_token_ids, config.TokenIds("eos_token_id"));
  ASSIGN_OR_RETURN(spec.bos_token_id, config.TokenId("bos_token_id"));
  ASSIGN_OR_RETURN(spec.pad_token_id, config.TokenId("pad_token_id"));
  spec.stored_rules = StoredRulesOf(row);
  spec.stored_constants = StoredConstantsOf(row);
  spec.ignored_tensors.assign(row.ignored_tensors().begin(), row.ignored_tensors().end());
  spec.optional_prefixes.assign(row.optional_prefixes().begin(), row.optional_prefixes().end());
  RETURN_IF_ERROR(IgnoreExtraLayers(row, values, spec));
  RETURN_IF_ERROR(ParseSharedKv(row, values, spec));
  RETURN_IF_ERROR(ParseLayerInputs(row, values, spec));
  RETURN_IF_ERROR(ParseExperts(row, values, spec));
  RETURN_IF_ERROR(ParseVision(row, config, spec));
  return spec;
}

}  // namespace tandem::model
