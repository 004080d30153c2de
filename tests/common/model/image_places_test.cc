#include "common/model/image_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kImage = 36;
constexpr int64_t kVideo = 37;

VisionSpec Spec() {
  VisionSpec spec;
  spec.merge_size = 2;
  spec.image_token_id = kImage;
  spec.video_token_id = kVideo;
  return spec;
}

std::string ErrorOf(const std::vector<int64_t>& ids, const std::vector<ImageGrid>& grids) {
  const absl::StatusOr<ImagePlaces> places = PlaceImages(Spec(), ids, grids);
  return places.ok() ? "" : std::string(places.status().message());
}

TEST(ImagePlaces, CountsTextOnBehindTheLongerSideOfAnImage) {
  // 2 x 3 merged rows.
  const std::vector<int64_t> ids = {5, kImage, kImage, kImage, kImage, kImage, kImage, 6, 7};
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(Spec(), ids, {{4, 6}}));
  EXPECT_THAT(places.tokens, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(places.positions[0], ElementsAre(0, 1, 1, 1, 1, 1, 1, 4, 5));
  EXPECT_THAT(places.positions[1], ElementsAre(0, 1, 1, 1, 2, 2, 2, 4, 5));
  EXPECT_THAT(places.positions[2], ElementsAre(0, 1, 2, 3, 1, 2, 3, 4, 5));
  EXPECT_EQ(places.next_position, 6);
}

TEST(ImagePlaces, TellsImagesApartThatFollowEachOther) {
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places,
                       PlaceImages(Spec(), {kImage, kImage, kImage}, {{2, 2}, {4, 2}}));
  EXPECT_THAT(places.positions[0], ElementsAre(0, 1, 1));
  EXPECT_THAT(places.positions[1], ElementsAre(0, 1, 2));
  EXPECT_EQ(places.next_position, 3);
}

TEST(ImagePlaces, NamesTheImageThatHasTooFewPlaceholders) {
  EXPECT_THAT(ErrorOf({5, kImage, 6, kImage}, {{2, 2}, {4, 2}}),
              HasSubstr("images[1]: expected 2 placeholders, one for each of 2 x 1 rows, found 1"));
}

TEST(ImagePlaces, NamesThePlaceholderWithoutAnImage) {
  EXPECT_THAT(ErrorOf({5, kImage, kImage}, {{2, 2}}), HasSubstr("token 2: id 36"));
}

TEST(ImagePlaces, NamesTheImageWithoutAPlaceholder) {
  EXPECT_THAT(ErrorOf({5, kImage}, {{2, 2}, {2, 2}}), HasSubstr("images[1]: no placeholder"));
}

TEST(ImagePlaces, RefusesGridsThatDoNotSplit) {
  for (const ImageGrid& grid :
       {ImageGrid{3, 2}, ImageGrid{2, 5}, ImageGrid{0, 2}, ImageGrid{-2, 2}}) {
    EXPECT_THAT(ErrorOf({kImage}, {grid}), HasSubstr("expected multiples of 2 patches"));
  }
}

TEST(ImagePlaces, RefusesVideos) {
  const absl::StatusOr<ImagePlaces> places = PlaceImages(Spec(), {5, kVideo}, {});
  EXPECT_EQ(places.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(places.status().message(), HasSubstr("token 1: id 37 stands for a video"));
}

}  // namespace
}  // namespace tandem::model
