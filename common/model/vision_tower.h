// The vision tower of a model (VisionSpec): from the patches of images to the rows that take the place
// of their placeholders in the embedding. Trainer and rollout call it, with the same kernels as the
// language model's layers.
//
//   const at::Tensor rows = EncodeImages(model, params, {pixel_values, grids});
//   at::Tensor x = model.Embed(params, token_ids, positions);
//   const at::Tensor tokens = at::tensor(places.tokens, at::kLong);
//   x = PutImages(x, tokens, rows);
//   for (int64_t i = 0; i < model.spec().num_layers(); ++i) {
//     x = AddImages(model.Block(params, i, x, rotary, attention), tokens, rows, i);
//   }
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
  // [num_patches, patch_elements]: color, frame, y, x. Patches that become one row follow one another, in
  // the order of the rows (images::ProcessedImage). float32 on the CPU, or on the device of the weights,
  // in their type.
  at::Tensor pixel_values;
  std::vector<ImageGrid> grids;
};

// Returns the images' rows, [sum of NumImageRows(), num_row_parts() * hidden]: what stands in the
// embedding, then what deepstack adds behind layer 0 of the language model, behind layer 1, ... On the
// CPU, and on a GPU with exact numerics, the rows of an image depend on that image alone, bit for bit.
// Differentiable with respect to the tower's parameters.
at::Tensor EncodeImages(const Transformer& model, const ParameterProvider& params,
                        const ImagePatches& images);

// Returns x [num_tokens, hidden], the embedding, with what `rows` [num_rows, num_row_parts() * hidden]
// have for it in place of the rows with these numbers, int64 [num_rows]. Differentiable.
at::Tensor PutImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows);

// Returns x [num_tokens, hidden], what this layer of the language model yields, with what `rows` add to
// it behind the layer; x itself if they add nothing. Differentiable.
at::Tensor AddImages(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows,
                     int64_t layer);
// Whether `rows`, which may be undefined, add to what the layer yields.
bool HasPartFor(const at::Tensor& rows, int64_t layer, int64_t hidden_size);
// Returns x with rows[i], [num_rows, hidden], added to the row tokens[i]; no number comes twice.
// Differentiable.
at::Tensor AddRows(const at::Tensor& x, const at::Tensor& tokens, const at::Tensor& rows);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_VISION_TOWER_H_
