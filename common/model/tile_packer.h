// Puts the rows of tiles together as the rows of images (packed_tiles.h).
#ifndef TANDEM_COMMON_MODEL_TILE_PACKER_H_
#define TANDEM_COMMON_MODEL_TILE_PACKER_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/model/image_places.h"
#include "common/model/model_spec.h"

namespace tandem::model {

// rows: [tiles * patches of a tile, hidden]; newline: [hidden]. Returns [sum of NumImageRows(), hidden]. An
// image's rows depend on that image alone, bit for bit. Differentiable.
at::Tensor PackRows(const TileSpec& tiles, const std::vector<ImageGrid>& grids,
                    const at::Tensor& rows, const at::Tensor& newline);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TILE_PACKER_H_
