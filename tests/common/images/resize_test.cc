#include "common/images/resize.h"

#include <gtest/gtest.h>

namespace tandem::images {
namespace {

Image Filled(int64_t height, int64_t width, uint8_t value) {
  return {height, width, std::vector<uint8_t>(height * width * 3, value)};
}

TEST(Resize, KeepsAFlatColor) {
  for (const Filter filter : {Filter::kBilinear, Filter::kBicubic}) {
    for (const auto& [height, width] : {std::pair(1, 1), std::pair(7, 300), std::pair(64, 3)}) {
      const Image out = Resize(Filled(20, 30, 201), height, width, filter);
      EXPECT_EQ(out.height, height);
      EXPECT_EQ(out.width, width);
      EXPECT_EQ(out.rgb, Filled(height, width, 201).rgb);
    }
  }
}

TEST(Resize, LeavesAnImageOfTheSizeAsItIs) {
  Image image = Filled(2, 3, 0);
  for (size_t i = 0; i < image.rgb.size(); ++i) image.rgb[i] = static_cast<uint8_t>(17 * i);
  EXPECT_EQ(Resize(image, 2, 3, Filter::kBicubic).rgb, image.rgb);
}

TEST(Resize, ShrinksTheLongestSide) {
  // Tens of thousands of pixels into one: sums and weights stay in range.
  Image line = Filled(1, 65535, 255);
  for (int64_t x = 0; x < 65535; x += 2) line.rgb[3 * x] = 0;
  const Image out = Resize(line, 1, 1, Filter::kBicubic);
  EXPECT_NEAR(out.rgb[0], 127, 2);
  EXPECT_NEAR(out.rgb[1], 255, 2);
}

TEST(Resize, DoesNotRunOverAtEdges) {
  // Bicubic weights overshoot; bytes are clamped.
  Image step = Filled(1, 8, 0);
  for (int64_t x = 4; x < 8; ++x) step.rgb[3 * x] = 255;
  const Image out = Resize(step, 1, 32, Filter::kBicubic);
  EXPECT_EQ(out.rgb[0], 0);
  EXPECT_EQ(out.rgb[3 * 31], 255);
}

}  // namespace
}  // namespace tandem::images
