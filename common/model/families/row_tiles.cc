#include "common/model/families/row_tiles.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_gemma_images.h"
#include "common/model/families/row_idefics.h"
#include "common/model/families/row_onevision.h"
#include "common/model/families/row_value.h"
#include "common/model/families/tower_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr int64_t kMaxImageSize = int64_t{1} << 16;
// Of the names under which our parameters and the folder's tensors lie.
constexpr char kOurs[] = "visual.";
constexpr char kFolders[] = "vision_tower.";

constexpr TileTowerDefaults kClip = {768, 3072, 12, 12, 224, 32, 1e-5, "quick_gelu"};
constexpr TileTowerDefaults kSiglip = {768, 3072, 12, 12, 224, 16, 1e-6, "gelu_pytorch_tanh"};
constexpr TileTowerDefaults kInternVl = {1024, 4096, 24, 16, 448, 14, 1e-6, "gelu"};

// A side in pixels, or both, which are equal.
absl::StatusOr<int64_t> Side(const ConfigReader& config, const char* key, int64_t absent) {
  if (!config.Has(key) || !config.At(key).is_array()) {
    return config.Size(key, kMaxImageSize, absent);
  }
  const json& sides = config.At(key);
  if (sides.size() != 2 || !sides[0].is_number_integer() || !sides[1].is_number_integer() ||
      sides[0] < 1 || sides[0] > kMaxImageSize) {
    return config.Invalid(key, "a number, or two");
  }
  if (sides[0] != sides[1]) return config.Unsupported(key, "two equal sides");
  return sides[0].get<int64_t>();
}

absl::StatusOr<Activation> ReadActivation(const ConfigReader& config, const char* key,
                                          const char* absent) {
  RowValue value;
  *value.Add() = key;
  *value.Add() = absent;
  ASSIGN_OR_RETURN(const Activation activation, RowValues(config).ActivationOf(value));
  if (activation != Activation::kXielu && activation != Activation::kClampedSwiglu) {
    return activation;
  }
  return config.Unsupported(key, "gelu, gelu_pytorch_tanh, quick_gelu, silu, relu, relu2");
}

// Which layer's results become rows, as transformers counts: 0 is what the first layer reads.
absl::Status ParseReadLayers(const ConfigReader& config, int64_t absent, VisionSpec& vision) {
  constexpr const char* kKey = "vision_feature_layer";
  int64_t layer = absent;
  if (config.Has(kKey)) {
    const json& value = config.At(kKey);
    if (value.is_array()) return config.Unsupported(kKey, "one layer");
    if (!value.is_number_integer()) return config.Invalid(kKey, "a layer");
    layer = value.get<int64_t>();
  }
  const int64_t num_layers = vision.num_layers();
  vision.tiles->num_read_layers = layer < 0 ? num_layers + 1 + layer : layer;
  if (vision.tiles->num_read_layers >= 1 && vision.tiles->num_read_layers <= num_layers) {
    return absl::OkStatus();
  }
  return config.Invalid(
      kKey, absl::StrCat("a layer from 1 to ", num_layers, ", or from ", -num_layers, " to -1"));
}

void AddUnread(std::string name, std::vector<int64_t> shape, VisionSpec& vision) {
  vision.tiles->unread.push_back({absl::StrCat(kOurs, name), std::move(shape)});
}

// The tensors of SigLIP's pooling head.
void AddHead(VisionSpec& vision) {
  const int64_t hidden = vision.hidden_size;
  const int64_t inner = vision.layers.front().feed_forward.intermediate_size;
  AddUnread("head.probe", {1, 1, hidden}, vision);
  AddUnread("head.attention.in_proj_weight", {3 * hidden, hidden}, vision);
  AddUnread("head.attention.in_proj_bias", {3 * hidden}, vision);
  const auto linear = [&](const char* name, int64_t out, int64_t in) {
    AddUnread(absl::StrCat(name, ".weight"), {out, in}, vision);
    AddUnread(absl::StrCat(name, ".bias"), {out}, vision);
  };
  linear("head.attention.out_proj", hidden, hidden);
  AddUnread("head.layernorm.weight", {hidden}, vision);
  AddUnread("head.layernorm.bias", {hidden}, vision);
  linear("head.mlp.fc1", inner, hidden);
  linear("head.mlp.fc2", hidden, inner);
}

absl::Status ParseLlava(const ConfigReader& config, const ConfigReader& tower, bool is_onevision,
                        VisionSpec& vision) {
  ASSIGN_OR_RETURN(
      const std::string type,
      tower.Text("model_type", is_onevision ? "siglip_vision_model" : "clip_vision_model"));
  const bool is_clip = type == "clip_vision_model";
  if (type != "siglip_vision_model" && (!is_clip || is_onevision)) {
    return tower.Unsupported("model_type", is_onevision ? "siglip_vision_model"
                                                        : "clip_vision_model, siglip_vision_model");
  }
  RETURN_IF_ERROR(ParseTileTower(tower, is_clip ? kClip : kSiglip, vision));
  RETURN_IF_ERROR(ParseReadLayers(config, is_onevision ? -1 : -2, vision));
  TileSpec& tiles = *vision.tiles;
  tiles.class_token = is_clip;
  vision.patch_bias = !is_clip;
  if (is_clip) vision.first_norm = vision.layers.front().norm;
  constexpr const char* kStrategy = "vision_feature_select_strategy";
  ASSIGN_OR_RETURN(const std::string strategy,
                   config.Text(kStrategy, is_onevision ? "full" : "default"));
  if (strategy != "full" && (strategy != "default" || !is_clip)) {
    return config.Unsupported(kStrategy,
                              is_clip ? "default, full" : "full, for a tower without class token");
  }
  tiles.keeps_class_token = is_clip && strategy == "full";
  ASSIGN_OR_RETURN(vision.merger_bias, config.Flag("multimodal_projector_bias", true));
  for (const char* part : {"weight", "bias"}) {
    AddUnread(absl::StrCat("post_layernorm.", part), {vision.hidden_size}, vision);
  }
  ASSIGN_OR_RETURN(const bool has_head, tower.Flag("vision_use_head", true));
  if (!is_clip && has_head) AddHead(vision);
  return is_onevision ? ParseCanvas(config, tiles) : absl::OkStatus();
}

absl::Status ParseInternVl(const ConfigReader& config, const ConfigReader& tower,
                           VisionSpec& vision) {
  RETURN_IF_ERROR(ParseTileTower(tower, kInternVl, vision));
  RETURN_IF_ERROR(ParseReadLayers(config, -1, vision));
  RETURN_IF_ERROR(RequireValue(config, "vision_feature_select_strategy", "default"));
  RETURN_IF_ERROR(RequireValue(config, "downsample_ratio", 0.5));
  RETURN_IF_ERROR(RequireValue(tower, "use_absolute_position_embeddings", true));
  RETURN_IF_ERROR(RequireValue(tower, "use_mean_pooling", true));
  RETURN_IF_ERROR(RequireValue(tower, "use_mask_token", false));
  vision.image_start = "<img>";
  vision.image_end = "</img>";
  vision.patch_bias = true;
  vision.merge_size = 2;
  TileSpec& tiles = *vision.tiles;
  if (tiles.side % vision.merge_size != 0) {
    return tower.Invalid("patch_size", absl::StrCat("a size that divides \"image_size\", ",
                                                    tiles.image_size, ", into an even number"));
  }
  tiles.class_token = true;
  tiles.class_token_is_row = true;
  vision.merger_norm = NormSpec{.kind = NormKind::kLayer, .eps = 1e-5, .bias = true};
  constexpr const char* kNorm = "norm_type";
  ASSIGN_OR_RETURN(const std::string norm, tower.Text(kNorm, "layer_norm"));
  if (norm != "layer_norm" && norm != "rms_norm") {
    return tower.Unsupported(kNorm, "layer_norm, rms_norm");
  }
  ASSIGN_OR_RETURN(const bool qkv_bias, tower.Flag("attention_bias", false));
  ASSIGN_OR_RETURN(const bool qk_norm, tower.Flag("use_qk_norm", false));
  for (LayerSpec& layer : vision.layers) {
    if (norm == "rms_norm") layer.norm = {.eps = layer.norm.eps};
    layer.attention.qkv_bias = qkv_bias;
    if (qk_norm) layer.attention.qk_norm = {QkNormSpec::Over::kAllHeads, false, {.eps = 1e-6}};
    layer.residual_scales = true;
  }
  return absl::OkStatus();
}

// Tensors whose shapes differ from the parameters', and those that no pass reads.
void AddStoredRules(bool is_internvl, ModelSpec& spec) {
  const VisionSpec& vision = *spec.vision;
  const auto add = [&](std::string name, std::string tensor, bool leading_one = false) {
    spec.stored_rules.push_back({.name = absl::StrCat(kOurs, name),
                                 .tensor = absl::StrCat(kFolders, tensor),
                                 .leading_one = leading_one});
  };
  add("patch_embed.proj.weight", is_internvl ? "embeddings.patch_embeddings.projection.weight"
                                             : "embeddings.patch_embedding.weight");
  spec.stored_rules.back().columns = {kTowerColors, vision.patch_size, vision.patch_size};
  if (is_internvl) {
    add("class_token", "embeddings.cls_token", /*leading_one=*/true);
    add("pos_embed.weight", "embeddings.position_embeddings", /*leading_one=*/true);
    add("blocks.{layer}.attention_scale", "encoder.layer.{layer}.lambda_1");
    add("blocks.{layer}.feed_forward_scale", "encoder.layer.{layer}.lambda_2");
  } else {
    add("class_token", "embeddings.class_embedding");
  }
  if (vision.tiles->canvas.has_value()) {
    spec.stored_rules.push_back(
        {.name = absl::StrCat(kOurs, "newline"), .tensor = "image_newline"});
  }
  for (const UnreadTensor& tensor : vision.tiles->unread) {
    const std::string name = tensor.name.substr(sizeof(kOurs) - 1);
    add(name, name);
  }
}

}  // namespace

bool SeesTiles(const v1::FamilyRow& row) {
  return row.vision_tower() == v1::VISION_TOWER_LLAVA ||
         row.vision_tower() == v1::VISION_TOWER_LLAVA_ONEVISION ||
         row.vision_tower() == v1::VISION_TOWER_INTERNVL ||
         row.vision_tower() == v1::VISION_TOWER_GEMMA3 ||
         row.vision_tower() == v1::VISION_TOWER_IDEFICS3;
}

absl::Status ParseSiglip(const ConfigReader& tower, VisionSpec& vision) {
  RETURN_IF_ERROR(RequireText(tower, "model_type", "siglip_vision_model"));
  RETURN_IF_ERROR(ParseTileTower(tower, kSiglip, vision));
  vision.tiles->num_read_layers = vision.num_layers();
  vision.patch_bias = true;
  ASSIGN_OR_RETURN(const bool has_head, tower.Flag("vision_use_head", true));
  if (has_head) AddHead(vision);
  return absl::OkStatus();
}

absl::Status ParseTileTower(const ConfigReader& tower, const TileTowerDefaults& defaults,
                            VisionSpec& vision) {
  RETURN_IF_ERROR(RequireValue(tower, "num_channels", kTowerColors));
  TileSpec& tiles = vision.tiles.emplace();
  ASSIGN_OR_RETURN(tiles.image_size, Side(tower, "image_size", defaults.image_size));
  ASSIGN_OR_RETURN(vision.patch_size, Side(tower, "patch_size", defaults.patch_size));
  tiles.side = tiles.image_size / vision.patch_size;
  if (tiles.side < 1) {
    return tower.Invalid("patch_size", absl::StrCat("at most \"image_size\", ", tiles.image_size));
  }
  vision.temporal_patch_size = 1;
  vision.merge_size = 1;
  ASSIGN_OR_RETURN(vision.hidden_size, tower.Size("hidden_size", kMaxWidth, defaults.hidden_size));
  LayerSpec layer;
  AttentionSpec& attention = layer.attention;
  RETURN_IF_ERROR(ParseTowerHeads(
      tower, {"num_attention_heads", defaults.num_heads, "hidden_size", /*multiple=*/1},
      vision.hidden_size, attention));
  attention.rope = -1;
  attention.qkv_bias = true;
  attention.output_bias = true;
  FeedForwardSpec& feed_forward = layer.feed_forward;
  ASSIGN_OR_RETURN(feed_forward.intermediate_size,
                   tower.Size("intermediate_size", kMaxWidth, defaults.intermediate_size));
  ASSIGN_OR_RETURN(feed_forward.activation,
                   ReadActivation(tower, "hidden_act", defaults.activation));
  feed_forward.gated = false;
  feed_forward.bias = true;
  layer.norm.kind = NormKind::kLayer;
  layer.norm.bias = true;
  ASSIGN_OR_RETURN(layer.norm.eps, tower.Positive("layer_norm_eps", defaults.norm_eps));
  ASSIGN_OR_RETURN(const int64_t num_layers,
                   tower.Size("num_hidden_layers", kMaxLayers, defaults.num_layers));
  vision.layers.assign(static_cast<size_t>(num_layers), layer);
  return absl::OkStatus();
}

absl::Status ParseTiles(const v1::FamilyRow& row, const ConfigReader& config,
                        const ConfigReader& tower, ModelSpec& spec) {
  const bool is_internvl = row.vision_tower() == v1::VISION_TOWER_INTERNVL;
  const bool is_onevision = row.vision_tower() == v1::VISION_TOWER_LLAVA_ONEVISION;
  VisionSpec& vision = spec.vision.emplace();
  vision.video_token_id = -1;
  vision.has_text_positions = true;
  if (row.vision_tower() == v1::VISION_TOWER_IDEFICS3) return ParseIdefics3(config, tower, spec);
  if (row.vision_tower() == v1::VISION_TOWER_GEMMA3) {
    RETURN_IF_ERROR(ParseGemmaImages(config, tower, spec));
    AddStoredRules(/*is_internvl=*/false, spec);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(is_internvl ? ParseInternVl(config, tower, vision)
                              : ParseLlava(config, tower, is_onevision, vision));
  ASSIGN_OR_RETURN(vision.merger_activation,
                   ReadActivation(config, "projector_hidden_act", "gelu"));
  const int64_t image_id = is_internvl ? 151667 : is_onevision ? 151646 : 32000;
  ASSIGN_OR_RETURN(vision.image_token_id, ImageTokenId(config, spec.vocab_size, image_id));
  if (is_onevision) {
    ASSIGN_OR_RETURN(vision.video_token_id, VideoTokenId(config, spec.vocab_size));
  }
  AddStoredRules(is_internvl, spec);
  return absl::OkStatus();
}

}  // namespace tandem::model
