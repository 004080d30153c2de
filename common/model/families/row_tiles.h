// Reads a vision tower that sees tiles (TileSpec) from the "vision_config" of a config.json: those of
// LLaVA, LLaVA-OneVision, InternVL and Gemma 3, and what Idefics 3's has in common with them.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Whether the row's tower sees tiles.
bool SeesTiles(const v1::FamilyRow& row);

// Sizes that a class of towers has where the file does not state them.
struct TileTowerDefaults {
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t num_layers;
  int64_t num_heads;
  int64_t image_size;
  int64_t patch_size;
  double norm_eps;
  const char* activation;
};

// Sets tiles, patches and layers of a tower from its "vision_config". Errors as those of ParseTiles().
absl::Status ParseTileTower(const ConfigReader& tower, const TileTowerDefaults& defaults,
                            VisionSpec& vision);

// Sets the tower to SigLIP's, all of whose layers are read.
absl::Status ParseSiglip(const ConfigReader& tower, VisionSpec& vision);

// Sets the tower of `spec`, whose language model is complete, and where its odd tensors lie. `tower`: its
// "vision_config". INVALID_ARGUMENT names the key: a bad size, a layer that the tower does not have.
// UNIMPLEMENTED: another class of tower, images that are no squares, rows made of several layers.
absl::Status ParseTiles(const v1::FamilyRow& row, const ConfigReader& config,
                        const ConfigReader& tower, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_
