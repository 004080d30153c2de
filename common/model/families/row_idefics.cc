#include "common/model/families/row_idefics.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_tiles.h"
#include "common/model/families/tower_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Idefics3VisionConfig of transformers 5.24.
constexpr TileTowerDefaults kDefaults = {1152, 3072, 12, 16, 224, 32, 1e-6, "gelu_pytorch_tanh"};
// Stands before each tile, and behind an image.
constexpr char kAround[] = "<fake_token_around_image>";

}  // namespace

absl::Status ParseIdefics3(const ConfigReader& config, const ConfigReader& tower, ModelSpec& spec) {
  VisionSpec& vision = *spec.vision;
  RETURN_IF_ERROR(ParseTileTower(tower, kDefaults, vision));
  vision.patch_bias = true;
  TileSpec& tiles = *vision.tiles;
  tiles.num_read_layers = vision.num_layers();
  vision.last_norm = vision.layers.front().norm;
  tiles.positions_by_share = true;
  tiles.text_between = true;
  vision.image_start = kAround;
  vision.image_end = kAround;
  constexpr const char* kScale = "scale_factor";
  ASSIGN_OR_RETURN(vision.merge_size, config.Size(kScale, kMaxMergeSize, 2));
  if (tiles.side % vision.merge_size != 0) {
    return config.Invalid(
        kScale, absl::StrCat("a divisor of ", tiles.side, ", the patches of ", vision.patch_size,
                             " pixels on a side of ", tiles.image_size));
  }
  vision.merger_is_matrix = true;
  vision.merger_bias = false;
  ASSIGN_OR_RETURN(vision.image_token_id, ImageTokenId(config, spec.vocab_size, 128257));
  spec.stored_rules.push_back({.name = kPatchWeight,
                               .tensor = "model.vision_model.embeddings.patch_embedding.weight",
                               .columns = {kTowerColors, vision.patch_size, vision.patch_size}});
  return absl::OkStatus();
}

}  // namespace tandem::model
