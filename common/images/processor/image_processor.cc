#include "common/images/processor/image_processor.h"

#include "absl/strings/str_cat.h"
#include "common/images/processor/smart_resize.h"
#include "common/images/processor/tiles.h"
#include "common/images/resize.h"
#include "common/status/status_macros.h"

namespace tandem::images {

absl::StatusOr<ImageProcessor> ImageProcessor::Load(const std::string& folder) {
  ASSIGN_OR_RETURN(PreprocessorConfig config, ReadPreprocessorConfig(folder));
  return ImageProcessor(std::move(config));
}

absl::StatusOr<ImageSize> ImageProcessor::PatchedSize(ImageSize image) const {
  const int64_t factor = config_.patch_size * config_.merge_size;
  if (config_.do_resize) {
    return SmartResize(image, factor, *config_.shortest_edge, *config_.longest_edge);
  }
  if (image.height % factor != 0 || image.width % factor != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the image has ", image.width, " x ", image.height,
                     " pixels; where do_resize is false, sides are multiples of ", factor));
  }
  return image;
}

absl::StatusOr<ProcessedImage> ImageProcessor::Process(const Image& image, ImageForm form) const {
  ProcessedImage out;
  if (config_.family == ProcessorFamily::kQwen2Vl) {
    ASSIGN_OR_RETURN(const ImageSize size, PatchedSize({image.height, image.width}));
    const int64_t patch = config_.patch_size;
    AppendPatches(Resize(image, size.height, size.width, config_.filter), values_, config_,
                  &out.pixel_values);
    out.grid = {1, size.height / patch, size.width / patch};
    out.shape = {out.grid[1] * out.grid[2], 3 * config_.temporal_patch_size * patch * patch};
    return out;
  }
  ASSIGN_OR_RETURN(const Tiles tiles, MakeTiles(image, config_, form));
  const Image& first = tiles.images[0];
  out.shape = {static_cast<int64_t>(tiles.images.size()), 3, first.height, first.width};
  out.grid = {1, tiles.rows, tiles.columns};
  for (const Image& tile : tiles.images) AppendPlanes(tile, values_, &out.pixel_values);
  return out;
}

absl::StatusOr<PlaceholderGrid> ImageProcessor::Placeholders(ImageSize image) const {
  if (config_.family == ProcessorFamily::kPixtral) {
    ASSIGN_OR_RETURN(const ImageSize size, PixtralSize(image, config_));
    return PlaceholderGrid{size.height / config_.pixtral_patch.height,
                           size.width / config_.pixtral_patch.width};
  }
  if (config_.family != ProcessorFamily::kQwen2Vl) {
    return absl::UnimplementedError(absl::StrCat(config_.place, ": placeholders of ", config_.type,
                                                 " are not built; Qwen's and Pixtral's are"));
  }
  ASSIGN_OR_RETURN(const ImageSize size, PatchedSize(image));
  const int64_t block = config_.patch_size * config_.merge_size;
  return PlaceholderGrid{size.height / block, size.width / block};
}

absl::StatusOr<int64_t> ImageProcessor::NumPlaceholders(ImageSize image) const {
  ASSIGN_OR_RETURN(const PlaceholderGrid grid, Placeholders(image));
  return grid.count();
}

}  // namespace tandem::images
