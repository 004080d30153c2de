#include "common/model/images/image_preparer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/decode.h"
#include "common/images/processor/tiles.h"
#include "common/io/file_util.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

absl::Status CheckEqual(const images::PreprocessorConfig& config, const char* key, int64_t found,
                        int64_t expected) {
  if (found == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(config.place, ": ", key, ": expected ", expected,
                   ", as vision_config of config.json says, found ", found,
                   "; take the preprocessor_config.json that belongs to this model"));
}

absl::Status CheckFamily(const images::PreprocessorConfig& config, images::ProcessorFamily family,
                         const char* type) {
  if (config.family == family) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(config.place, ": image_processor_type: expected ",
                                                 type, " for the model's vision tower, found ",
                                                 config.type));
}

absl::Status CheckTiles(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  const TileSpec& tiles = *spec.tiles;
  ASSIGN_OR_RETURN(const images::ImageSize size, images::TileSize(config));
  const char* const key = config.crop_size.has_value() ? "crop_size" : "size";
  RETURN_IF_ERROR(CheckEqual(config, key, size.height, tiles.image_size));
  RETURN_IF_ERROR(CheckEqual(config, key, size.width, tiles.image_size));
  const bool cuts = config.family == images::ProcessorFamily::kGotOcr2 && config.crop_to_patches;
  if (!cuts || !spec.image_start.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      config.place,
      ": crop_to_patches: expected false, for a tower that sees an image as one tile"));
}

absl::Status CheckPixtral(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  RETURN_IF_ERROR(CheckFamily(config, images::ProcessorFamily::kPixtral, "PixtralImageProcessor"));
  const int64_t side = spec.patch_size * spec.merge_size;
  const images::ImageSize& found = config.pixtral_patch;
  if (found.height == side && found.width == side) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      config.place, ": patch_size: expected sides of ", side, " pixels, ", spec.merge_size,
      " patches of ", spec.patch_size, " as config.json says, found ", found.height, " x ",
      found.width, "; take the processor_config.json that belongs to this model, whose ",
      "patch_size and spatial_merge_size count"));
}

// The placeholders of an image that becomes tiles lie in one line.
images::PlaceholderTexts TextsOf(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  if (!spec.tiles.has_value()) return config.placeholders;
  images::PlaceholderTexts texts{.start = spec.image_start, .end = spec.image_end};
  if (spec.image_start.empty()) texts.fixed_count = spec.rows_per_tile();
  return texts;
}

// Cuts images, [num_images, 3, height, width], into patches of 3 x patch x patch, of which those that become
// one row follow one another. Pixels beyond the last whole row are left out.
std::vector<float> CutPatches(const std::vector<float>& pixels, int64_t num_images, int64_t height,
                              int64_t width, int64_t patch, int64_t merge) {
  std::vector<float> patches;
  patches.reserve(pixels.size());
  const int64_t side = patch * merge;
  const auto append = [&](int64_t image, int64_t top, int64_t left) {
    for (int64_t plane = image * 3; plane < image * 3 + 3; ++plane) {
      for (int64_t y = top; y < top + patch; ++y) {
        const float* const line = pixels.data() + (plane * height + y) * width + left;
        patches.insert(patches.end(), line, line + patch);
      }
    }
  };
  for (int64_t image = 0; image < num_images; ++image) {
    for (int64_t top = 0; top + side <= height; top += side) {
      for (int64_t left = 0; left + side <= width; left += side) {
        for (int64_t y = top; y < top + side; y += patch) {
          for (int64_t x = left; x < left + side; x += patch) append(image, y, x);
        }
      }
    }
  }
  return patches;
}

}  // namespace

ImagePreparer::ImagePreparer(images::ImageProcessor processor, const VisionSpec& spec)
    : processor_(std::move(processor)),
      spec_(spec),
      placeholders_(TextsOf(processor_.config(), spec)) {}

absl::StatusOr<images::PlaceholderGrid> ImagePreparer::Placeholders(images::ImageSize image) const {
  if (!spec_.tiles.has_value()) return processor_.Placeholders(image);
  ASSIGN_OR_RETURN(const int64_t num_tiles, images::NumTiles(image, processor_.config()));
  return images::PlaceholderGrid{1, num_tiles * spec_.rows_per_tile()};
}

images::PlaceholderGrid ImagePreparer::PlaceholdersOf(const ImageGrid& grid) const {
  if (spec_.tiles.has_value()) return {1, NumImageRows(spec_, grid)};
  return {grid.rows / spec_.merge_size, grid.columns / spec_.merge_size};
}

ImageGrid ImagePreparer::PatchesOf(const images::PlaceholderGrid& grid) const {
  if (!spec_.tiles.has_value()) {
    return {grid.rows * spec_.merge_size, grid.columns * spec_.merge_size};
  }
  return {grid.count() / spec_.rows_per_tile() * spec_.tiles->side, spec_.tiles->side};
}

absl::StatusOr<ImagePreparer> ImagePreparer::Load(const std::string& folder,
                                                  const VisionSpec& spec) {
  ASSIGN_OR_RETURN(images::ImageProcessor processor, images::ImageProcessor::Load(folder));
  const images::PreprocessorConfig& config = processor.config();
  if (spec.tiles.has_value()) {
    RETURN_IF_ERROR(CheckTiles(config, spec));
    return ImagePreparer(std::move(processor), spec);
  }
  if (spec.has_line_breaks) {
    RETURN_IF_ERROR(CheckPixtral(config, spec));
    return ImagePreparer(std::move(processor), spec);
  }
  RETURN_IF_ERROR(CheckFamily(config, images::ProcessorFamily::kQwen2Vl, "Qwen2VLImageProcessor"));
  RETURN_IF_ERROR(CheckEqual(config, "patch_size", config.patch_size, spec.patch_size));
  RETURN_IF_ERROR(CheckEqual(config, "temporal_patch_size", config.temporal_patch_size,
                             spec.temporal_patch_size));
  RETURN_IF_ERROR(CheckEqual(config, "merge_size", config.merge_size, spec.merge_size));
  return ImagePreparer(std::move(processor), spec);
}

absl::StatusOr<PreparedImage> ImagePreparer::Prepare(absl::string_view file,
                                                     const std::string& place,
                                                     const images::ImageLimits& limits) const {
  ASSIGN_OR_RETURN(const images::Image image, images::DecodeImage(file, place, limits));
  absl::StatusOr<images::ProcessedImage> processed = processor_.Process(image);
  if (!processed.ok()) return io::AtPlace(place, processed.status());
  if (processor_.config().family != images::ProcessorFamily::kQwen2Vl) {
    const std::vector<int64_t>& shape = processed->shape;  // images, colors, height, width
    const int64_t patch = spec_.patch_size;
    return PreparedImage{
        {shape[0] * (shape[2] / patch), shape[3] / patch},
        CutPatches(processed->pixel_values, shape[0], shape[2], shape[3], patch, spec_.merge_size)};
  }
  return PreparedImage{{processed->grid[1], processed->grid[2]},
                       std::move(processed->pixel_values)};
}

}  // namespace tandem::model
