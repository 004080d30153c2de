#include "tools/tandem/bench/random_pictures.h"

#include <png.h>

#include <algorithm>
#include <memory>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/images/image_digest.h"
#include "common/model/images/image_preparer.h"
#include "common/status/status_macros.h"
#include "tools/tandem/commands/command.h"

namespace tandem::bench {
namespace {

constexpr int32_t kText = 1;  // stands for a token of text

// RGB of 8 bits, compressed.
std::string PngOf(const std::vector<uint8_t>& colors, int64_t side) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<png_uint_32>(side);
  image.format = PNG_FORMAT_RGB;
  // The first call says how many bytes the second one writes.
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&image, nullptr, &size, /*convert_to_8_bit=*/0, colors.data(),
                            /*row_stride=*/0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&image, file.data(), &size, /*convert_to_8_bit=*/0, colors.data(),
                            /*row_stride=*/0, nullptr);
  file.resize(size);
  return file;
}

}  // namespace

RandomPictures::RandomPictures(const PictureOptions& options, const model::VisionSpec& spec,
                               const images::PlaceholderGrid& grid, int64_t num_patches)
    : options_(options),
      rows_(grid.count()),
      num_patches_(num_patches),
      reserved_{static_cast<uint32_t>(spec.image_token_id),
                static_cast<uint32_t>(spec.video_token_id)} {
  images::PlaceholderIds ids{.placeholder = static_cast<int32_t>(spec.image_token_id)};
  if (spec.has_line_breaks) ids.line_break = kText;
  if (spec.images_see_ahead) ids.end = kText;
  if (spec.tiles.has_value() && spec.tiles->text_between) {
    ids.start = ids.end = kText;
    ids.tiles = std::make_shared<const images::TileIds>(
        images::TileIds{.whole = {kText},
                        .line = {kText},
                        .last_line = {kText},
                        .max_side = images::kMaxTilesOnSide,
                        .names = std::vector<std::vector<int32_t>>(
                            images::kMaxTilesOnSide * images::kMaxTilesOnSide, {kText})});
  }
  images::AppendPlaceholders(ids, grid, &tokens_);
}

absl::StatusOr<RandomPictures> RandomPictures::Create(const std::string& folder,
                                                      const model::ModelSpec& spec,
                                                      const PictureOptions& options) {
  if (!spec.vision.has_value()) {
    return commands::Misuse(absl::InvalidArgumentError(
        absl::StrCat("--images: ", folder, " has no vision tower; expected a model that has one")));
  }
  ASSIGN_OR_RETURN(const model::ImagePreparer preparer,
                   model::ImagePreparer::Load(folder, *spec.vision));
  const images::ImageForm form = images::FormOfEach(static_cast<size_t>(options.per_prompt));
  const images::ImageSize size = {options.side, options.side};
  ASSIGN_OR_RETURN(const images::PlaceholderGrid placeholders, preparer.Placeholders(size, form));
  ASSIGN_OR_RETURN(const model::ImageGrid grid, preparer.GridOf(size, form));
  return RandomPictures(options, *spec.vision, placeholders, grid.num_patches());
}

driver::PromptImage RandomPictures::Draw() {
  std::minstd_rand random(seed_++);
  // Shades with some noise: as large a file as a photograph.
  std::vector<uint8_t> colors;
  const int64_t side = options_.side;
  colors.reserve(static_cast<size_t>(3 * side * side));
  for (int64_t y = 0; y < side; ++y) {
    for (int64_t x = 0; x < side; ++x) {
      const uint32_t noise = random() % 16;
      colors.push_back(static_cast<uint8_t>(x * 240 / side + noise));
      colors.push_back(static_cast<uint8_t>(y * 240 / side + noise));
      colors.push_back(static_cast<uint8_t>((x + y + seed_) % 240 + noise));
    }
  }
  driver::PromptImage image;
  auto file = std::make_shared<const std::string>(PngOf(colors, side));
  image.digest = images::ImageDigest(*file);
  image.file = std::move(file);
  return image;
}

void RandomPictures::AddTo(driver::Prompt& prompt) {
  std::vector<uint32_t> ids;
  for (size_t i = 0; i < prompt.token_ids.size(); ++i) {
    const uint32_t id = prompt.token_ids[i];
    const bool is_reserved = std::find(reserved_.begin(), reserved_.end(), id) != reserved_.end();
    ids.push_back(is_reserved ? kText : id);
    if (static_cast<int64_t>(i) >= options_.per_prompt) continue;
    ids.insert(ids.end(), tokens_.begin(), tokens_.end());
    prompt.images.push_back(Draw());
  }
  prompt.token_ids = std::move(ids);
}

}  // namespace tandem::bench
