// Reads what LLaVA-OneVision's config.json says of the canvases on which an image is cut into tiles.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_ONEVISION_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_ONEVISION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// Sets TileSpec::canvas of a tower whose tiles are known. INVALID_ARGUMENT names the key: canvases that are
// no whole number of tiles, or of more than images::kMaxTilesOfImage. UNIMPLEMENTED: another vision_aspect_ratio
// than anyres_max_N.
absl::Status ParseCanvas(const ConfigReader& config, TileSpec& tiles);

// The placeholder of videos; -1 for a file that names none and a vocabulary without the class's.
absl::StatusOr<int64_t> VideoTokenId(const ConfigReader& config, int64_t vocab_size);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_ONEVISION_H_
