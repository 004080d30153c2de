// Against Pillow, through transformers' convert_to_rgb().
#include <gtest/gtest.h>

#include "absl/strings/string_view.h"
#include "common/hash/hasher.h"
#include "common/images/decode.h"
#include "tests/common/images/golden_rows.h"
#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

TEST(DecodeGolden, PixelsEqualPillows) {
  const auto rows = GoldenRows("decoded.jsonl");
  ASSERT_GT(rows.size(), 70u);
  for (const auto& row : rows) {
    const std::string file = row["file"];
    SCOPED_TRACE(file);
    ASSERT_OK_AND_ASSIGN(const Image image, DecodeImage(GoldenFile(file), file, ImageLimits()));
    EXPECT_EQ(image.height, row["height"].get<int64_t>());
    EXPECT_EQ(image.width, row["width"].get<int64_t>());
    const absl::string_view bytes(reinterpret_cast<const char*>(image.rgb.data()),
                                  image.rgb.size());
    EXPECT_EQ(hash::HexDigest(bytes), row["digest"].get<std::string>());
  }
}

}  // namespace
}  // namespace tandem::images
