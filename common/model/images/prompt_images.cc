#include "common/model/images/prompt_images.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tandem::model {

at::Tensor PositionsOf(const ImagePlaces& places) {
  const auto num_tokens = static_cast<int64_t>(places.positions[0].size());
  at::Tensor positions = at::empty({3, num_tokens}, at::kLong);
  auto* to = positions.mutable_data_ptr<int64_t>();
  for (const std::vector<int64_t>& axis : places.positions) {
    to = std::copy(axis.begin(), axis.end(), to);
  }
  return positions;
}

ImagePatches PatchesOf(absl::Span<const PreparedImage* const> images) {
  TORCH_CHECK(!images.empty(), "expected an image");
  ImagePatches patches;
  int64_t num_patches = 0;
  for (const PreparedImage* image : images) {
    patches.grids.push_back(image->grid);
    num_patches += image->grid.num_patches();
  }
  const int64_t width = static_cast<int64_t>(images.front()->pixel_values.size()) /
                        images.front()->grid.num_patches();
  patches.pixel_values = at::empty({num_patches, width}, at::kFloat);
  auto* to = patches.pixel_values.mutable_data_ptr<float>();
  for (const PreparedImage* image : images) {
    TORCH_CHECK(
        static_cast<int64_t>(image->pixel_values.size()) == image->grid.num_patches() * width,
        "an image of ", image->grid.num_patches(), " patches of ", width, " elements has ",
        image->pixel_values.size());
    to = std::copy(image->pixel_values.begin(), image->pixel_values.end(), to);
  }
  return patches;
}

}  // namespace tandem::model
