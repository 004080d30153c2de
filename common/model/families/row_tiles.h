// Reads a vision tower that sees tiles (TileSpec) from the "vision_config" of a config.json: those of
// LLaVA and InternVL.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_

#include "absl/status/status.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Whether the row's tower sees tiles.
bool SeesTiles(const v1::FamilyRow& row);

// Sets the tower of `spec`, whose language model is complete, and where its odd tensors lie. `tower`: its
// "vision_config". INVALID_ARGUMENT names the key: a bad size, a layer that the tower does not have.
// UNIMPLEMENTED: another class of tower, images that are no squares, rows made of several layers.
absl::Status ParseTiles(const v1::FamilyRow& row, const ConfigReader& config,
                        const ConfigReader& tower, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_TILES_H_
