#include "common/model/families/row_vision.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_pixtral.h"
#include "common/model/families/row_tiles.h"
#include "common/model/families/tower_config.h"
#include "common/model/rotary_frequencies.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// Larger ones mean a corrupt file.
constexpr int64_t kMaxFrames = 64;
constexpr int64_t kMaxWindowSize = int64_t{1} << 20;
constexpr int64_t kMaxPositionEmbeddings = int64_t{1} << 20;

// Keys of the language model that keep their outer values.
bool IsOuter(const std::string& key) { return key == "architectures" || key == "model_type"; }

absl::Status ParsePatches(const ConfigReader& config, VisionSpec& vision) {
  RETURN_IF_ERROR(RequireValue(config, "in_channels", kTowerColors));
  RETURN_IF_ERROR(RequireValue(config, "in_chans", kTowerColors));
  ASSIGN_OR_RETURN(vision.patch_size, config.Size("patch_size", kMaxPatchSize, 14));
  ASSIGN_OR_RETURN(vision.temporal_patch_size, config.Size("temporal_patch_size", kMaxFrames, 2));
  ASSIGN_OR_RETURN(vision.merge_size, config.Size("spatial_merge_size", kMaxMergeSize, 2));
  return ParseTowerRope(config, vision);
}

// What the layers of all towers have.
absl::StatusOr<LayerSpec> ParseLayer(const ConfigReader& config, const char* width_key,
                                     VisionSpec& vision) {
  LayerSpec layer;
  ASSIGN_OR_RETURN(vision.hidden_size, config.Size(width_key, kMaxWidth));
  AttentionSpec& attention = layer.attention;
  RETURN_IF_ERROR(ParseTowerHeads(config, {"num_heads", 16, width_key, kRotatedInHalves},
                                  vision.hidden_size, attention));
  attention.qkv_bias = true;
  attention.output_bias = true;
  layer.feed_forward.bias = true;
  layer.norm = {.eps = 1e-6};
  return layer;
}

// `width`: of the rows that the language model takes.
absl::Status CheckWidth(const ConfigReader& config, int64_t width) {
  constexpr const char* kKey = "out_hidden_size";
  ASSIGN_OR_RETURN(const int64_t out, config.Size(kKey, kMaxWidth, 3584));
  if (out == width) return absl::OkStatus();
  return config.Invalid(kKey, absl::StrCat("the language model's, ", width));
}

absl::Status ParseQwen2Vl(const ConfigReader& config, int64_t width, VisionSpec& vision) {
  ASSIGN_OR_RETURN(LayerSpec layer, ParseLayer(config, "embed_dim", vision));
  RETURN_IF_ERROR(RequireText(config, "hidden_act", "quick_gelu"));
  ASSIGN_OR_RETURN(const double ratio, config.Positive("mlp_ratio", 4.0));
  const double units = static_cast<double>(vision.hidden_size) * ratio;
  if (!(units >= 1 && units <= static_cast<double>(kMaxWidth))) {
    return config.Invalid("mlp_ratio",
                          absl::StrCat("a factor for which \"embed_dim\", ", vision.hidden_size,
                                       ", becomes 1 to ", kMaxWidth, " units"));
  }
  layer.feed_forward.intermediate_size = static_cast<int64_t>(units);
  layer.feed_forward.activation = Activation::kQuickGelu;
  layer.feed_forward.gated = false;
  layer.norm.kind = NormKind::kLayer;
  layer.norm.bias = true;
  if (!config.Has("hidden_size") || config.At("hidden_size") != width) {
    return config.Invalid("hidden_size", absl::StrCat("the language model's, ", width));
  }
  ASSIGN_OR_RETURN(const int64_t depth, config.Size("depth", kMaxLayers, 32));
  vision.layers.assign(static_cast<size_t>(depth), layer);
  return absl::OkStatus();
}

// Reads a list of numbers of layers, or else `of_class`.
absl::StatusOr<std::vector<int64_t>> Layers(const ConfigReader& config, const char* key,
                                            const json& of_class) {
  const json& list = config.Has(key) ? config.At(key) : of_class;
  if (!list.is_array()) return config.Invalid(key, "a list of layers");
  std::vector<int64_t> layers;
  for (const json& layer : list) {
    if (!layer.is_number_integer()) return config.Invalid(key, "a list of layers");
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

absl::Status ParseWindows(const ConfigReader& config, VisionSpec& vision) {
  ASSIGN_OR_RETURN(const int64_t pixels, config.Size("window_size", kMaxWindowSize, 112));
  vision.window_size = pixels / vision.merge_size / vision.patch_size;
  if (vision.window_size < 1) {
    return config.Invalid("window_size",
                          absl::StrCat("at least ", vision.merge_size * vision.patch_size,
                                       " pixels, those of one merged row"));
  }
  ASSIGN_OR_RETURN(vision.full_attention_layers,
                   Layers(config, "fullatt_block_indexes", {7, 15, 23, 31}));
  return absl::OkStatus();
}

absl::Status ParseQwen25Vl(const ConfigReader& config, int64_t width, VisionSpec& vision) {
  ASSIGN_OR_RETURN(LayerSpec layer, ParseLayer(config, "hidden_size", vision));
  RETURN_IF_ERROR(RequireText(config, "hidden_act", "silu"));
  ASSIGN_OR_RETURN(layer.feed_forward.intermediate_size,
                   config.Size("intermediate_size", kMaxWidth, 3420));
  RETURN_IF_ERROR(CheckWidth(config, width));
  ASSIGN_OR_RETURN(const int64_t depth, config.Size("depth", kMaxLayers, 32));
  vision.layers.assign(static_cast<size_t>(depth), layer);
  return ParseWindows(config, vision);
}

// Whether the tower is Qwen3-VL's or like it.
bool IsQwen3(const v1::FamilyRow& row) {
  return row.vision_tower() == v1::VISION_TOWER_QWEN3_VL ||
         row.vision_tower() == v1::VISION_TOWER_QWEN3_5;
}

bool IsPixtral(const v1::FamilyRow& row) { return row.vision_tower() == v1::VISION_TOWER_PIXTRAL; }

absl::Status ParseDeepstack(const v1::FamilyRow& row, const ConfigReader& config,
                            int64_t num_text_layers, VisionSpec& vision) {
  constexpr const char* kKey = "deepstack_visual_indexes";
  const bool has_deepstack = row.vision_tower() == v1::VISION_TOWER_QWEN3_VL;
  const json of_class = has_deepstack ? json({8, 16, 24}) : json::array();
  ASSIGN_OR_RETURN(vision.deepstack_layers, Layers(config, kKey, of_class));
  if (!has_deepstack && !vision.deepstack_layers.empty()) return config.Unsupported(kKey, "[]");
  const std::vector<int64_t>& layers = vision.deepstack_layers;
  const bool ascends =
      std::adjacent_find(layers.begin(), layers.end(), std::greater_equal<>()) == layers.end();
  if (!ascends ||
      (!layers.empty() && (layers.front() < 0 || layers.back() >= vision.num_layers()))) {
    return config.Invalid(kKey, absl::StrCat("layers of the tower from 0 to ",
                                             vision.num_layers() - 1, ", in ascending order"));
  }
  if (static_cast<int64_t>(layers.size()) > num_text_layers) {
    return config.Invalid(kKey, absl::StrCat("at most ", num_text_layers,
                                             " layers, one for each of the language model's"));
  }
  return absl::OkStatus();
}

absl::Status ParseQwen3Vl(const v1::FamilyRow& row, const ConfigReader& config,
                          const ModelSpec& spec, VisionSpec& vision) {
  ASSIGN_OR_RETURN(LayerSpec layer, ParseLayer(config, "hidden_size", vision));
  RETURN_IF_ERROR(RequireText(config, "hidden_act", "gelu_pytorch_tanh"));
  ASSIGN_OR_RETURN(layer.feed_forward.intermediate_size,
                   config.Size("intermediate_size", kMaxWidth, 4304));
  layer.feed_forward.activation = Activation::kGeluTanh;
  layer.feed_forward.gated = false;
  layer.norm.kind = NormKind::kLayer;
  layer.norm.bias = true;
  RETURN_IF_ERROR(CheckWidth(config, spec.hidden_size));
  ASSIGN_OR_RETURN(const int64_t depth, config.Size("depth", kMaxLayers, 27));
  vision.layers.assign(static_cast<size_t>(depth), layer);
  vision.patch_bias = true;
  constexpr const char* kPositions = "num_position_embeddings";
  ASSIGN_OR_RETURN(const int64_t positions, config.Size(kPositions, kMaxPositionEmbeddings, 2304));
  vision.position_grid = std::llround(std::sqrt(static_cast<double>(positions)));
  if (vision.position_grid * vision.position_grid != positions) {
    return config.Invalid(kPositions, "a square number, the positions of a square");
  }
  return ParseDeepstack(row, config, spec.num_layers(), vision);
}

// Whether time, height and width can take turns in a head of so many pairs.
absl::Status CheckAlternating(const ConfigReader& scaling, const char* key, const RopeSpec& rope,
                              int64_t pairs) {
  ASSIGN_OR_RETURN(const bool alternate, scaling.Flag("mrope_interleaved", true));
  if (!alternate) return scaling.Unsupported("mrope_interleaved", "true, for this family");
  // Of height and width, the frequencies 1, 4, ... and 2, 5, ...
  for (const size_t axis : {size_t{1}, size_t{2}}) {
    const int64_t size = rope.sections[axis];
    if (size > 0 && 3 * (size - 1) + static_cast<int64_t>(axis) >= pairs) {
      return scaling.Invalid(key, absl::StrCat("numbers such that each third of ", pairs,
                                               " pairs suffices for height and for width"));
    }
  }
  return absl::OkStatus();
}

// Sets which frequencies turn by time, height and width.
absl::Status ParseSections(const v1::FamilyRow& row, const ConfigReader& config, ModelSpec& spec) {
  const bool alternate = IsQwen3(row);
  const char* const key = config.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  constexpr const char* kSections = "mrope_section";
  const json none = json::object();
  const json& object = config.Has(key) && config.At(key).is_object() ? config.At(key) : none;
  const ConfigReader scaling(object, absl::StrCat(config.place(), ": ", key));
  for (RopeSpec& rope : spec.ropes) {
    const int64_t pairs = RotaryDim(rope, spec.layers.front().attention.head_dim) / 2;
    const auto invalid = [&] {
      return scaling.Invalid(kSections, absl::StrCat("three numbers, which add up to the ", pairs,
                                                     " pairs of a head"));
    };
    const json of_class = !alternate                                       ? json()
                          : row.vision_tower() == v1::VISION_TOWER_QWEN3_5 ? json({11, 11, 10})
                                                                           : json({24, 20, 20});
    const json& sections = scaling.Has(kSections) ? scaling.At(kSections) : of_class;
    if (!sections.is_array() || sections.size() != 3) return invalid();
    int64_t sum = 0;
    for (const json& section : sections) {
      if (!section.is_number_integer() || section < 0 || section > pairs) return invalid();
      rope.sections.push_back(section.get<int64_t>());
      sum += rope.sections.back();
    }
    if (sum != pairs) return invalid();
    rope.sections_alternate = alternate;
    if (!alternate) continue;
    RETURN_IF_ERROR(CheckAlternating(scaling, kSections, rope, pairs));
  }
  return absl::OkStatus();
}

}  // namespace

json WithTextConfig(const v1::FamilyRow& row, const json& config) {
  json flat = config;
  if (!config.contains("text_config") || !config["text_config"].is_object()) return flat;
  const json& text = config["text_config"];
  for (const auto& [key, value] : text.items()) {
    if (!IsOuter(key)) flat[key] = value;
  }
  // As in transformers, where later families read the outer value alone. Files of Mistral 3 that have
  // none are older, when the language model's counted.
  constexpr const char* kTie = "tie_word_embeddings";
  if (IsPixtral(row)) {
    if (config.contains(kTie) && !config[kTie].is_null()) flat[kTie] = config[kTie];
    return flat;
  }
  const bool has_own = row.vision_tower() == v1::VISION_TOWER_INTERNVL ||
                       row.vision_tower() == v1::VISION_TOWER_GEMMA3;
  const bool only_outer = IsQwen3(row) || row.vision_tower() == v1::VISION_TOWER_IDEFICS3 ||
                          (has_own && config.contains(kTie));
  if (only_outer) flat.erase(kTie);
  if (config.contains(kTie) && (only_outer || (config[kTie] != false && !config[kTie].is_null()))) {
    flat[kTie] = config[kTie];
  }
  return flat;
}

absl::Status ParseVision(const v1::FamilyRow& row, const ConfigReader& config, ModelSpec& spec) {
  if (row.vision_tower() == v1::VISION_TOWER_UNSPECIFIED) return absl::OkStatus();
  constexpr const char* kKey = "vision_config";
  if (!config.Has(kKey) || !config.At(kKey).is_object()) return config.Invalid(kKey, "an object");
  const ConfigReader tower(config.At(kKey), absl::StrCat(config.place(), ": ", kKey));
  RETURN_IF_ERROR(CheckRopes(config, spec));
  if (SeesTiles(row)) return ParseTiles(row, config, tower, spec);
  if (IsPixtral(row)) return ParsePixtral(config, tower, spec);
  VisionSpec& vision = spec.vision.emplace();
  RETURN_IF_ERROR(ParsePatches(tower, vision));
  RETURN_IF_ERROR(IsQwen3(row) ? ParseQwen3Vl(row, tower, spec, vision)
                  : row.vision_tower() == v1::VISION_TOWER_QWEN2_VL
                      ? ParseQwen2Vl(tower, spec.hidden_size, vision)
                      : ParseQwen25Vl(tower, spec.hidden_size, vision));
  vision.merger_norm = vision.layers.front().norm;
  const int64_t most_ids = spec.vocab_size - 1;
  const int64_t image_id = row.vision_tower() == v1::VISION_TOWER_QWEN3_5 ? 248056 : 151655;
  ASSIGN_OR_RETURN(vision.image_token_id, config.Count("image_token_id", most_ids, image_id));
  ASSIGN_OR_RETURN(vision.video_token_id, config.Count("video_token_id", most_ids, image_id + 1));
  spec.stored_rules.push_back({.name = kPatchWeight,
                               .tensor = absl::StrCat(IsQwen3(row) ? "model." : "", kPatchWeight),
                               .columns = {kTowerColors, vision.temporal_patch_size,
                                           vision.patch_size, vision.patch_size}});
  return ParseSections(row, config, spec);
}

}  // namespace tandem::model
