#include "common/model/families/row_pixtral.h"

#include <cstdint>
#include <string>

#include "common/model/families/tower_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Pixtral's layers, with the defaults of transformers' PixtralVisionConfig.
absl::StatusOr<LayerSpec> ParsePixtralLayer(const ConfigReader& config, VisionSpec& vision) {
  constexpr const char* kActivation = "hidden_act";
  LayerSpec layer;
  ASSIGN_OR_RETURN(vision.hidden_size, config.Size("hidden_size", kMaxWidth, 1024));
  RETURN_IF_ERROR(ParseTowerHeads(config,
                                  {"num_attention_heads", 16, "hidden_size", kRotatedInHalves},
                                  vision.hidden_size, layer.attention));
  ASSIGN_OR_RETURN(layer.feed_forward.intermediate_size,
                   config.Size("intermediate_size", kMaxWidth, 4096));
  ASSIGN_OR_RETURN(const std::string activation, config.Text(kActivation, "gelu"));
  if (activation != "gelu" && activation != "silu") {
    return config.Unsupported(kActivation, "gelu, silu");
  }
  layer.feed_forward.activation = activation == "gelu" ? Activation::kGelu : Activation::kSilu;
  layer.norm = {.eps = 1e-5};
  return layer;
}

}  // namespace

absl::Status ParsePixtral(const ConfigReader& config, const ConfigReader& tower, ModelSpec& spec) {
  VisionSpec& vision = spec.vision.emplace();
  RETURN_IF_ERROR(RequireText(tower, "model_type", "pixtral"));
  RETURN_IF_ERROR(RequireValue(tower, "num_channels", kTowerColors));
  ASSIGN_OR_RETURN(vision.patch_size, tower.Size("patch_size", kMaxPatchSize, 16));
  vision.temporal_patch_size = 1;
  ASSIGN_OR_RETURN(vision.merge_size, config.Size("spatial_merge_size", kMaxMergeSize, 2));
  // Older files have it beside the others.
  ASSIGN_OR_RETURN(vision.rope.theta, tower.Positive("rope_theta", vision.rope.theta));
  RETURN_IF_ERROR(ParseTowerRope(tower, vision));
  vision.columns_between_rows = true;
  ASSIGN_OR_RETURN(const LayerSpec layer, ParsePixtralLayer(tower, vision));
  ASSIGN_OR_RETURN(const int64_t depth, tower.Size("num_hidden_layers", kMaxLayers, 24));
  vision.layers.assign(static_cast<size_t>(depth), layer);
  vision.first_norm = layer.norm;
  // Another layer than the last, or several.
  RETURN_IF_ERROR(RequireValue(config, "vision_feature_layer", -1));
  RETURN_IF_ERROR(RequireText(config, "projector_hidden_act", "gelu"));
  ASSIGN_OR_RETURN(vision.merger_bias, config.Flag("multimodal_projector_bias", false));
  vision.merger_norm = NormSpec{.eps = spec.layers.front().norm.eps};
  vision.reduces_patches = true;
  vision.has_line_breaks = true;
  vision.has_text_positions = true;
  ASSIGN_OR_RETURN(vision.image_token_id, ImageTokenId(config, spec.vocab_size, 10));
  vision.video_token_id = -1;
  spec.stored_rules.push_back({.name = kPatchWeight,
                               .tensor = "vision_tower.patch_conv.weight",
                               .columns = {kTowerColors, vision.patch_size, vision.patch_size}});
  return absl::OkStatus();
}

}  // namespace tandem::model
