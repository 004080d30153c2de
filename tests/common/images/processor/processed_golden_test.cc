// Against transformers' image processors with torchvision.
#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "common/hash/hasher.h"
#include "common/images/processor/image_processor.h"
#include "common/images/processor/smart_resize.h"
#include "tests/common/images/golden_rows.h"
#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

// pattern() of image_golden.py.
Image Pattern(int64_t height, int64_t width) {
  Image image{height, width, {}};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        image.rgb.push_back(static_cast<uint8_t>(x * 7 + y * 13 + c * 50 + x * y % 29 * 3));
      }
    }
  }
  return image;
}

TEST(ProcessedGolden, PixelValuesEqualTransformersByteForByte) {
  const auto rows = GoldenRows("processed.jsonl");
  ASSERT_GT(rows.size(), 60u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    ASSERT_OK_AND_ASSIGN(PreprocessorConfig config,
                         ParsePreprocessorConfig(row["config"], nlohmann::json::object(), "test"));
    const ImageProcessor processor(config);
    const Image image = Pattern(row["height"], row["width"]);
    const ImageForm form =
        row.contains("among_others") ? ImageForm::kAmongOthers : ImageForm::kAlone;
    ASSERT_OK_AND_ASSIGN(const ProcessedImage out, processor.Process(image, form));
    EXPECT_EQ(out.shape, row["shape"].get<std::vector<int64_t>>());
    if (row.contains("grid")) {
      EXPECT_EQ(out.grid, (row["grid"].get<std::array<int64_t, 3>>()));
    }
    const absl::string_view bytes(reinterpret_cast<const char*>(out.pixel_values.data()),
                                  out.pixel_values.size() * sizeof(float));
    EXPECT_EQ(hash::HexDigest(bytes), row["digest"].get<std::string>());
    if (config.family == ProcessorFamily::kQwen2Vl) {
      const int64_t merged = config.merge_size * config.merge_size;
      ASSERT_OK_AND_ASSIGN(const int64_t count,
                           processor.NumPlaceholders({image.height, image.width}));
      EXPECT_EQ(count, out.grid[1] * out.grid[2] / merged);
    }
  }
}

TEST(ProcessedGolden, SizesEqualTransformers) {
  const auto rows = GoldenRows("sizes.jsonl");
  ASSERT_GT(rows.size(), 100u);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    ASSERT_OK_AND_ASSIGN(const ImageSize size,
                         SmartResize({row["height"], row["width"]}, row["factor"],
                                     row["min_pixels"], row["max_pixels"]));
    EXPECT_EQ(size.height, row["resized"][0].get<int64_t>());
    EXPECT_EQ(size.width, row["resized"][1].get<int64_t>());
  }
}

}  // namespace
}  // namespace tandem::images
