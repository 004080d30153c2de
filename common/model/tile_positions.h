// Where the patches of a tile's side lie among the learned positions of the side.
#ifndef TANDEM_COMMON_MODEL_TILE_POSITIONS_H_
#define TANDEM_COMMON_MODEL_TILE_POSITIONS_H_

#include <cstdint>
#include <vector>

#include "common/model/model_spec.h"

namespace tandem::model {

// Returns the position of each of the TileSpec::side patches: its number, but for some of
// TileSpec::positions_by_share, with the roundings of transformers (Idefics3VisionEmbeddings): of 25
// patches, counted from 0, number 5 has position 4.
std::vector<int64_t> PlacesOnSide(const TileSpec& tiles);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TILE_POSITIONS_H_
