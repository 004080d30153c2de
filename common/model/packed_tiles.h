// Where the rows of an image lie that became tiles of a canvas (CanvasSpec), as transformers' LLaVA-OneVision
// packs them: first those of the tile that shows the whole image; then, line by line and with a newline behind
// each, those of the canvas without its margins, shrunk where they are too many.
//
//   ASSIGN_OR_RETURN(const ImageGrid grid, PackTiles(*spec.tiles, {480, 640}, {768, 768}));
//   // A tower of 27 x 27 patches a tile: 5 tiles, and of the canvas 54 x 54 patches 40 lines of 54 rows.
#ifndef TANDEM_COMMON_MODEL_PACKED_TILES_H_
#define TANDEM_COMMON_MODEL_PACKED_TILES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/image_places.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// The tiles of an image of `image` pixels on `canvas`, one of CanvasSpec::sizes. INVALID_ARGUMENT for an
// image so narrow that no row would be left of it.
absl::StatusOr<ImageGrid> PackTiles(const TileSpec& tiles, CanvasSpec::Size image,
                                    CanvasSpec::Size canvas);

// An image among others: one tile, and a newline.
ImageGrid PackOneTile(const TileSpec& tiles);

// Where the rows of packed images come from.
struct PackedOrder {
  // Rows between those of the tiles: each is the sum of four of them, times their shares.
  struct Corner {
    std::vector<int64_t> rows;  // among those of all tiles
    std::vector<float> shares;
  };
  std::vector<Corner> corners;  // four, or none if no image is shrunk
  int64_t num_newlines = 0;
  // For each row of the images: its number among the tiles' rows, the interpolated ones and the newlines,
  // one after another.
  std::vector<int64_t> sources;
};

PackedOrder OrderOf(const TileSpec& tiles, const std::vector<ImageGrid>& grids);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_PACKED_TILES_H_
