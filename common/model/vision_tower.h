// The vision tower of a model (VisionSpec): from the patches of images to the rows that take the place
// of their placeholders in the embedding. Trainer and rollout call it, with the same kernels as the
// language model's layers.
//
//   const at::Tensor rows = EncodeImages(model, params, {pixel_values, grids});
//   at::Tensor x = model.Embed(params, token_ids, positions);
//   x = PutImages(x, at::tensor(places.tokens, at::kLong), rows);
#ifndef TANDEM_COMMON_MODEL_VISION_TOWER_H_
#define TANDEM_COMMON_MODEL_VISION_TOWER_H_

#include <ATen/core/Tensor.h>

#include <vector>

#include "common/model/image_places.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"

namespace tandem::model {

// Images, one after another.
struct ImagePatches {
  // float32 [num_patches, patch_elements]: color, frame, y, x. Patches that become one row follow one
  // another, in the order of the rows (images::ProcessedImage).
  at::Tensor pixel_values;
  std::vector<ImageGrid> grids;
};

// Returns the images' rows, [sum of NumImageRows(), hidden]. Every tensor-parallel rank computes all of
// them. On the CPU the rows of an image depend on that image alone, bit for bit. Differentiable with
// respect to the tower's parameters.
at::Tensor EncodeImages(const Transformer& model, const ParameterProvider& params,
                        const ImagePatches& images);

// Returns x [num_tokens, hidden] with `rows` [num_rows, hidden] in place of those with these numbers,
// int64 [num_rows]. Differentiable.
at::Tensor PutImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_VISION_TOWER_H_
