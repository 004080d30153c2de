// How the rows of an image's tiles are put together, against transformers (tests/parity/packed_tiles_golden.py).
#include "common/model/packed_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/images/processor/tiles.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TileSpec TilesOf(const json& model) {
  TileSpec tiles;
  tiles.image_size = model["image_size"];
  tiles.side = model["side"];
  tiles.canvas.emplace().max_tiles = model["max_tiles"];
  for (const json& pair : model["pinpoints"]) tiles.canvas->sizes.push_back({pair[0], pair[1]});
  return tiles;
}

// The canvas that the image processor takes.
CanvasSpec::Size CanvasFor(const TileSpec& tiles, CanvasSpec::Size image) {
  images::PreprocessorConfig config;
  for (const CanvasSpec::Size& size : tiles.canvas->sizes) {
    config.image_grid_pinpoints.push_back({size.height, size.width});
  }
  const images::ImageSize canvas = images::CanvasOf({image.height, image.width}, config);
  return {canvas.height, canvas.width};
}

// The rows of one image where those of its tiles are 0, 1, ..., and the newline is -1.
std::vector<double> NumbersOf(const TileSpec& tiles, const ImageGrid& grid) {
  const PackedOrder order = OrderOf(tiles, {grid});
  const int64_t num_rows = grid.num_patches();
  const int64_t num_between =
      order.corners.empty() ? 0 : static_cast<int64_t>(order.corners.front().rows.size());
  std::vector<double> numbers;
  for (const int64_t source : order.sources) {
    double number = source < num_rows ? static_cast<double>(source) : -1;
    if (source >= num_rows && source < num_rows + num_between) {
      const auto at = static_cast<size_t>(source - num_rows);
      number = 0;
      for (const PackedOrder::Corner& corner : order.corners) {
        number += static_cast<double>(corner.shares[at]) * static_cast<double>(corner.rows[at]);
      }
    }
    numbers.push_back(number);
  }
  EXPECT_EQ(order.num_newlines, grid.packed.lines);
  return numbers;
}

TEST(PackedTiles, RowsLieWhereTransformersPutsThem) {
  const char* const source = std::getenv("TANDEM_SOURCE");
  const std::string folder = source == nullptr ? "." : source;
  ASSERT_OK_AND_ASSIGN(const json models,
                       io::ReadJsonFile(folder + "/tests/common/model/packed_tiles.json"));
  int num_images = 0;
  int num_shrunk = 0;
  for (const json& model : models["models"]) {
    const TileSpec tiles = TilesOf(model);
    for (const json& image : model["images"]) {
      SCOPED_TRACE(image.dump());
      const CanvasSpec::Size size{image[0], image[1]};
      ASSERT_OK_AND_ASSIGN(const ImageGrid grid, PackTiles(tiles, size, CanvasFor(tiles, size)));
      const std::vector<double> numbers = NumbersOf(tiles, grid);
      ASSERT_EQ(static_cast<int64_t>(numbers.size()), image[2].get<int64_t>());
      EXPECT_EQ(tiles.side * tiles.side + grid.packed.num_rows(), image[2].get<int64_t>());
      double sum = 0;
      for (size_t i = 0; i < numbers.size(); ++i) sum += numbers[i] * static_cast<double>(i % 97);
      const double mean = image[3];
      EXPECT_NEAR(sum / static_cast<double>(numbers.size()), mean, 1e-5 * std::abs(mean) + 1e-3);
      ++num_images;
      num_shrunk += grid.packed.is_shrunk() ? 1 : 0;
    }
  }
  EXPECT_GT(num_images, 200);
  EXPECT_GT(num_shrunk, 50);
}

TEST(PackedTiles, AnImageAmongOthersIsOneTileAndANewline) {
  TileSpec tiles{.image_size = 8, .side = 2};
  tiles.canvas = CanvasSpec{{{8, 16}}, 9};
  EXPECT_THAT(NumbersOf(tiles, PackOneTile(tiles)), ElementsAre(0, 1, 2, 3, -1));
  // Two images one after the other; the first fills a canvas of two tiles.
  ASSERT_OK_AND_ASSIGN(const ImageGrid both, PackTiles(tiles, {8, 16}, {8, 16}));
  const PackedOrder order = OrderOf(tiles, {both, PackOneTile(tiles)});
  // Twelve rows of the first, four of the second, then the newlines.
  EXPECT_THAT(order.sources, ElementsAre(0, 1, 2, 3, 4, 5, 8, 9, 16, 6, 7, 10, 11, 17,  //
                                         12, 13, 14, 15, 18));
}

TEST(PackedTiles, NamesAnImageOfWhichNothingIsLeft) {
  TileSpec tiles{.image_size = 8, .side = 2};
  tiles.canvas = CanvasSpec{{{8, 800}}, 1};
  EXPECT_THAT(PackTiles(tiles, {3, 400}, {8, 800}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("400 x 3 pixels")));
}

}  // namespace
}  // namespace tandem::model
