// The passes of a vision tower that sees tiles (TileSpec): a plain ViT, over each tile by itself.
// EncodeImages() calls it.
//
//   const at::Tensor rows = EncodeTiles(model, params, {pixel_values, grids});
#ifndef TANDEM_COMMON_MODEL_TILE_TOWER_H_
#define TANDEM_COMMON_MODEL_TILE_TOWER_H_

#include <ATen/core/Tensor.h>

#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"
#include "common/model/vision_tower.h"

namespace tandem::model {

// EncodeImages() of a model with VisionSpec::tiles; the shape of pixel_values is checked. Differentiable.
at::Tensor EncodeTiles(const Transformer& model, const ParameterProvider& params,
                       const ImagePatches& images);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TILE_TOWER_H_
