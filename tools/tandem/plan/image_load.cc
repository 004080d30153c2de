#include "tools/tandem/plan/image_load.h"

#include <algorithm>

#include "common/model/packed_tiles.h"

namespace tandem::plan {

ImageLoad LoadOf(const model::VisionSpec& vision, int64_t rows, int64_t rows_per_prompt) {
  if (!vision.tiles.has_value() || !vision.tiles->canvas.has_value()) {
    return {rows * vision.patches_per_row(), rows};
  }
  const model::TileSpec& tiles = *vision.tiles;
  const int64_t per_prompt = std::max<int64_t>(rows_per_prompt, 1);
  model::ImageGrid largest = model::PackOneTile(tiles);
  for (const model::CanvasSpec::Size& canvas : tiles.canvas->sizes) {
    const auto grid = model::PackTiles(tiles, canvas, canvas);
    if (!grid.ok() || grid->num_patches() < largest.num_patches()) continue;
    if (model::NumImageRows(vision, *grid) <= per_prompt) largest = *grid;
  }
  // Several images of a prompt are one tile each.
  const int64_t num_small =
      std::max<int64_t>(1, per_prompt / (vision.rows_per_tile() + 1)) * vision.rows_per_tile();
  const int64_t count = (rows + per_prompt - 1) / per_prompt;
  if (num_small > largest.num_patches()) {
    const int64_t images = count * num_small / vision.rows_per_tile();
    return {count * num_small, rows, 0, images};
  }
  const model::PackedLines& lines = largest.packed;
  return {count * largest.num_patches(), rows,
          count * (lines.is_shrunk() && lines.tile_columns > 0 ? lines.lines * lines.columns : 0),
          count * lines.lines};
}

}  // namespace tandem::plan
