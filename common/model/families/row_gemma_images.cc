#include "common/model/families/row_gemma_images.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_tiles.h"
#include "common/model/families/tower_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

constexpr char kGemmaText[] = "text_config";
constexpr int64_t kMaxGemmaRows = int64_t{1} << 20;

// What transformers 5.24's class says where a file does not; the row has the rest.
constexpr char kGemmaDefaults[] =
    R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8})";
// The same; files may have them outside.
constexpr char kGemmaTokens[] = R"({"bos_token_id": 2, "eos_token_id": 1, "pad_token_id": 0})";

}  // namespace

absl::Status AddGemmaText(const std::string& place, json& config) {
  const ConfigReader outer(config, place);
  if (!outer.Has(kGemmaText) || !outer.At(kGemmaText).is_object()) {
    return outer.Invalid(kGemmaText, "an object");
  }
  const ConfigReader text(outer.At(kGemmaText), absl::StrCat(place, ": ", kGemmaText));
  RETURN_IF_ERROR(RequireText(text, "model_type", "gemma3_text"));
  json complete = json::parse(kGemmaDefaults);
  const json tokens = json::parse(kGemmaTokens);
  for (const auto& [key, value] : tokens.items()) {
    if (!outer.Has(key.c_str())) complete[key] = value;
  }
  for (const auto& [key, value] : text.object().items()) complete[key] = value;
  config[kGemmaText] = std::move(complete);
  return absl::OkStatus();
}

absl::Status ParseGemmaImages(const ConfigReader& config, const ConfigReader& tower,
                              ModelSpec& spec) {
  constexpr const char* kRows = "mm_tokens_per_image";
  VisionSpec& vision = *spec.vision;
  constexpr const char* kSoftcap = "final_logit_softcapping";
  if (config.Has(kSoftcap)) return config.Unsupported(kSoftcap, "null, for a model with images");
  RETURN_IF_ERROR(ParseSiglip(tower, vision));
  ASSIGN_OR_RETURN(const int64_t rows, config.Size(kRows, kMaxGemmaRows, 256));
  const int64_t side = std::llround(std::sqrt(static_cast<double>(rows)));
  const int64_t patches = vision.tiles->side;
  if (side * side != rows || patches % side != 0) {
    return config.Invalid(kRows, absl::StrCat("the square of a number that divides ", patches,
                                              ", the patches of an image's side"));
  }
  vision.merge_size = patches / side;
  vision.last_norm = vision.layers.front().norm;
  vision.averages_patches = true;
  vision.merger_is_matrix = true;
  vision.merger_norm = NormSpec{.eps = vision.last_norm->eps, .unit_offset = true};
  vision.merger_bias = false;
  vision.image_start = "<start_of_image>";
  vision.image_end = "<end_of_image>";
  vision.template_writes_start = true;
  vision.images_see_ahead = true;
  ASSIGN_OR_RETURN(vision.image_token_id, ImageTokenId(config, spec.vocab_size, 262144));
  spec.stored_rules.push_back({.name = "visual.merger.down_proj.weight",
                               .tensor = "multi_modal_projector.mm_input_projection_weight",
                               .transposed = true});
  return absl::OkStatus();
}

}  // namespace tandem::model
