// The images of prompts as tensors: what a forward pass takes besides token ids.
//
//   const ImagePlaces places = ...;  // PlaceImages()
//   const Rotary rotary = model.MakeRotary(PositionsOf(places));
//   const at::Tensor rows = EncodeImages(model, params, PatchesOf({&image}));
#ifndef TANDEM_COMMON_MODEL_IMAGES_PROMPT_IMAGES_H_
#define TANDEM_COMMON_MODEL_IMAGES_PROMPT_IMAGES_H_

#include <ATen/core/Tensor.h>

#include "absl/types/span.h"
#include "common/model/image_places.h"
#include "common/model/images/image_preparer.h"
#include "common/model/vision_tower.h"

namespace tandem::model {

// Returns int64 [3, num_tokens], on the CPU: positions by time, height and width.
at::Tensor PositionsOf(const ImagePlaces& places);

// Returns the images one after another, copied, on the CPU. At least one.
ImagePatches PatchesOf(absl::Span<const PreparedImage* const> images);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_IMAGES_PROMPT_IMAGES_H_
