#include "common/model/families/row_onevision.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/images/processor/preprocessor_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using images::kMaxTilesOfImage;
using nlohmann::json;

constexpr size_t kMaxSizes = 4096;  // several times what published models have

// Of LlavaOnevisionConfig: all multiples of 384 up to six.
json DefaultSizes() {
  json sizes = json::array();
  for (int height = 1; height <= 6; ++height) {
    for (int width = 1; width <= 6; ++width) sizes.push_back({384 * height, 384 * width});
  }
  return sizes;
}

absl::Status ParseSizes(const ConfigReader& config, TileSpec& tiles) {
  constexpr const char* kKey = "image_grid_pinpoints";
  const json sizes = config.Has(kKey) ? config.At(kKey) : DefaultSizes();
  const std::string expected = absl::StrCat(
      "a list of 1 to ", kMaxSizes, " pairs [height, width], multiples of the \"image_size\" of ",
      "vision_config, ", tiles.image_size, ", of at most ", kMaxTilesOfImage, " tiles");
  if (!sizes.is_array() || sizes.empty() || sizes.size() > kMaxSizes) {
    return config.Invalid(kKey, expected);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const json& pair = sizes[i];
    int64_t num_tiles = 1;
    const bool is_pair = pair.is_array() && pair.size() == 2;
    for (size_t side = 0; is_pair && side < 2; ++side) {
      const int64_t pixels = pair[side].is_number_integer() ? pair[side].get<int64_t>() : 0;
      const bool fits = pixels > 0 && pixels % tiles.image_size == 0 &&
                        pixels / tiles.image_size <= kMaxTilesOfImage;
      num_tiles = fits ? num_tiles * (pixels / tiles.image_size) : 0;
    }
    if (!is_pair || num_tiles < 1 || num_tiles > kMaxTilesOfImage) {
      return config.Invalid(
          kKey, absl::StrCat(expected, "; at index ", i, " is ", pair.dump().substr(0, 80)));
    }
    tiles.canvas->sizes.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseCanvas(const ConfigReader& config, TileSpec& tiles) {
  constexpr const char* kKey = "vision_aspect_ratio";
  CanvasSpec& canvas = tiles.canvas.emplace();
  RETURN_IF_ERROR(ParseSizes(config, tiles));
  ASSIGN_OR_RETURN(const std::string ratio, config.Text(kKey, "anyres_max_9"));
  absl::string_view number = ratio;
  if (!absl::ConsumePrefix(&number, "anyres_max_") ||
      !absl::SimpleAtoi(number, &canvas.max_tiles) || canvas.max_tiles < 1 ||
      canvas.max_tiles > kMaxTilesOfImage) {
    return config.Unsupported(kKey, absl::StrCat("anyres_max_1 to anyres_max_", kMaxTilesOfImage));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> VideoTokenId(const ConfigReader& config, int64_t vocab_size) {
  constexpr int64_t kOfClass = 151647;
  const char* const key = config.Has("video_token_index") ? "video_token_index" : "video_token_id";
  if (!config.Has(key)) return kOfClass < vocab_size ? kOfClass : -1;
  return config.Count(key, vocab_size - 1, kOfClass);
}

}  // namespace tandem::model
