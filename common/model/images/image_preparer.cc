#include "common/model/images/image_preparer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/decode.h"
#include "common/images/processor/tiles.h"
#include "common/io/file_util.h"
#include "common/model/image_forms.h"
#include "common/model/packed_tiles.h"
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

// What LLaVA-OneVision's processor counts placeholders by is what its model packs rows by.
absl::Status CheckCanvas(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  const CanvasSpec& canvas = *spec.tiles->canvas;
  const auto is_same = [](const images::ImageSize& a, const CanvasSpec::Size& b) {
    return a.height == b.height && a.width == b.width;
  };
  const std::vector<images::ImageSize>& found = config.image_grid_pinpoints;
  if (!std::equal(found.begin(), found.end(), canvas.sizes.begin(), canvas.sizes.end(), is_same)) {
    return absl::InvalidArgumentError(absl::StrCat(
        config.place,
        ": image_grid_pinpoints: expected those of config.json, in its order; take the "
        "preprocessor_config.json that belongs to this model"));
  }
  const int64_t rows = spec.rows_per_tile();
  if (config.num_image_tokens.value_or(rows) != rows) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.place, ": num_image_tokens of processor_config.json: expected ", rows,
                     ", the patches of a tile, found ", *config.num_image_tokens));
  }
  const std::string ratio = absl::StrCat("anyres_max_", canvas.max_tiles);
  if (config.vision_aspect_ratio.value_or(ratio) != ratio) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.place, ": vision_aspect_ratio of processor_config.json: expected ",
                     ratio, ", as config.json says, found ", *config.vision_aspect_ratio));
  }
  return absl::OkStatus();
}

// Whether the processor writes the texts of tiles that the prompt has.
absl::Status CheckTileTexts(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  if (spec.tiles->text_between) {
    RETURN_IF_ERROR(
        CheckFamily(config, images::ProcessorFamily::kIdefics3, "Idefics3ImageProcessor"));
    if (config.image_seq_len == 0) return absl::OkStatus();
    return CheckEqual(config, "image_seq_len of processor_config.json", config.image_seq_len,
                      spec.rows_per_tile());
  }
  if (config.family != images::ProcessorFamily::kIdefics3) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(config.place, ": image_processor_type: ", config.type,
                   " is of models whose tiles have texts, which this one's have not; take the "
                   "preprocessor_config.json that belongs to this model"));
}

absl::Status CheckTiles(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  const TileSpec& tiles = *spec.tiles;
  RETURN_IF_ERROR(CheckTileTexts(config, spec));
  if (tiles.canvas.has_value()) {
    RETURN_IF_ERROR(CheckFamily(config, images::ProcessorFamily::kLlavaOnevision,
                                "LlavaOnevisionImageProcessor"));
  }
  ASSIGN_OR_RETURN(const images::ImageSize size, images::TileSize(config));
  const char* const key = tiles.text_between             ? "max_image_size.longest_edge"
                          : config.crop_size.has_value() ? "crop_size"
                                                         : "size";
  RETURN_IF_ERROR(CheckEqual(config, key, size.height, tiles.image_size));
  RETURN_IF_ERROR(CheckEqual(config, key, size.width, tiles.image_size));
  if (tiles.canvas.has_value()) return CheckCanvas(config, spec);
  if (config.family == images::ProcessorFamily::kLlavaOnevision) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.place,
                     ": image_processor_type: expected one that makes one tile of an image, found ",
                     config.type));
  }
  const bool cuts = config.family == images::ProcessorFamily::kGotOcr2 && config.crop_to_patches;
  if (!cuts || (!spec.image_start.empty() && !spec.template_writes_start)) return absl::OkStatus();
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

// As tokenizer_config.json of all of its models says.
constexpr char kGemmaPlaceholder[] = "<image_soft_token>";

// The placeholders of an image that becomes tiles lie in one line.
images::PlaceholderTexts TextsOf(const images::PreprocessorConfig& config, const VisionSpec& spec) {
  if (!spec.tiles.has_value()) return config.placeholders;
  if (spec.template_writes_start) {
    return {.placeholder = kGemmaPlaceholder,
            .written = spec.image_start,
            .written_out =
                absl::StrCat("\n\n", spec.image_start, kGemmaPlaceholder, spec.image_end, "\n\n")};
  }
  images::PlaceholderTexts texts{.start = spec.image_start, .end = spec.image_end};
  texts.count_among_others = CountAmongOthers(spec);
  if (texts.count_among_others == 0 && spec.image_start.empty()) {
    texts.fixed_count = spec.rows_per_tile();
  }
  texts.tiles = config.placeholders.tiles;
  return texts;
}

// The patches of an image of this size, of a tower with a canvas.
absl::StatusOr<ImageGrid> PackedGrid(const VisionSpec& spec, images::ImageSize image,
                                     const images::PreprocessorConfig& config,
                                     images::ImageForm form) {
  if (form == images::ImageForm::kAmongOthers) {
    RETURN_IF_ERROR(images::CheckSquare(image, config));
    return PackOneTile(*spec.tiles);
  }
  const images::ImageSize canvas = images::CanvasOf(image, config);
  return PackTiles(*spec.tiles, {image.height, image.width}, {canvas.height, canvas.width});
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

absl::StatusOr<images::PlaceholderGrid> ImagePreparer::Placeholders(images::ImageSize image,
                                                                    images::ImageForm form) const {
  if (spec_.has_canvas()) {
    ASSIGN_OR_RETURN(const ImageGrid grid, GridOf(image, form));
    return images::PlaceholderGrid{1, NumImageRows(spec_, grid)};
  }
  if (!spec_.tiles.has_value()) return processor_.Placeholders(image);
  if (spec_.tiles->text_between) {
    ASSIGN_OR_RETURN(const images::ImageSize cut, images::Idefics3Cut(image, processor_.config()));
    return images::PlaceholderGrid{cut.height * cut.width + 1, spec_.rows_per_tile(), cut.width};
  }
  ASSIGN_OR_RETURN(const int64_t num_tiles, images::NumTiles(image, processor_.config()));
  return images::PlaceholderGrid{1, num_tiles * spec_.rows_per_tile()};
}

absl::StatusOr<ImageGrid> ImagePreparer::GridOf(images::ImageSize image,
                                                images::ImageForm form) const {
  if (spec_.has_canvas()) return PackedGrid(spec_, image, processor_.config(), form);
  ASSIGN_OR_RETURN(const images::PlaceholderGrid grid, Placeholders(image, form));
  return PatchesOf(grid);
}

ImageGrid ImagePreparer::PatchesOf(const images::PlaceholderGrid& grid) const {
  if (!spec_.tiles.has_value()) {
    return {grid.rows * spec_.merge_size, grid.columns * spec_.merge_size};
  }
  if (spec_.has_canvas()) {
    const int64_t more = grid.count() - spec_.rows_per_tile();
    return {spec_.tiles->side,
            spec_.tiles->side,
            {.lines = more > 0 ? 1 : 0, .columns = std::max<int64_t>(more - 1, 0)}};
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
                                                     images::ImageForm form,
                                                     const images::ImageLimits& limits) const {
  ASSIGN_OR_RETURN(const images::Image image, images::DecodeImage(file, place, limits));
  absl::StatusOr<ImageGrid> packed;
  if (spec_.has_canvas()) {
    packed = GridOf({image.height, image.width}, form);
    if (!packed.ok()) return io::AtPlace(place, packed.status());
  }
  absl::StatusOr<images::ProcessedImage> processed = processor_.Process(image, form);
  if (!processed.ok()) return io::AtPlace(place, processed.status());
  ASSIGN_OR_RETURN(const images::PlaceholderGrid placeholders,
                   Placeholders({image.height, image.width}, form));
  if (processor_.config().family != images::ProcessorFamily::kQwen2Vl) {
    const std::vector<int64_t>& shape = processed->shape;  // images, colors, height, width
    const int64_t patch = spec_.patch_size;
    const ImageGrid grid =
        spec_.has_canvas() ? *packed : ImageGrid{shape[0] * (shape[2] / patch), shape[3] / patch};
    return PreparedImage{
        grid,
        CutPatches(processed->pixel_values, shape[0], shape[2], shape[3], patch, spec_.merge_size),
        placeholders};
  }
  return PreparedImage{
      {processed->grid[1], processed->grid[2]}, std::move(processed->pixel_values), placeholders};
}

}  // namespace tandem::model
