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

// A tower that sees tiles of 4 x 4 patches, of which merged rows have 2 x 2.
VisionSpec TileTower(bool keeps_class_token) {
  VisionSpec spec = Spec();
  spec.video_token_id = -1;
  spec.has_text_positions = true;
  spec.tiles.emplace();
  spec.tiles->side = 4;
  spec.tiles->class_token = true;
  spec.tiles->keeps_class_token = keeps_class_token;
  return spec;
}

TEST(ImagePlaces, RowsOfTilesCountOnLikeText) {
  EXPECT_EQ(NumImageRows(TileTower(false), {8, 4}), 8);
  EXPECT_EQ(NumImageRows(TileTower(true), {8, 4}), 10);
  const std::vector<int64_t> ids = {5, kImage, kImage, kImage, kImage, kVideo};
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(TileTower(false), ids, {{4, 4}}));
  EXPECT_THAT(places.tokens, ElementsAre(1, 2, 3, 4));
  for (const std::vector<int64_t>& axis : places.positions) {
    EXPECT_THAT(axis, ElementsAre(0, 1, 2, 3, 4, 5));
  }
  EXPECT_EQ(places.next_position, 6);
}

// The trainer has -1 in place of each id of text.
TEST(ImagePlaces, ATowerWithoutVideosTakesAnyIdOfText) {
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(TileTower(false), {-1, -1}, {}));
  EXPECT_EQ(places.next_position, 2);
}

TEST(ImagePlaces, NamesTilesThatDoNotFit) {
  const auto error_of = [](const ImageGrid& grid) {
    return std::string(PlaceImages(TileTower(false), {kImage, kImage}, {grid}).status().message());
  };
  EXPECT_THAT(error_of({4, 4}), HasSubstr("expected 4 placeholders, one for each of 4 rows"));
  EXPECT_THAT(error_of({6, 4}), HasSubstr("images[0]: expected tiles of 4 x 4 patches"));
  EXPECT_THAT(error_of({4, 8}), HasSubstr("found 4 x 8"));
}

// Lines of placeholders with a token of text behind each, as Pixtral has them.
VisionSpec LineSpec() {
  VisionSpec spec = Spec();
  spec.video_token_id = -1;
  spec.has_line_breaks = true;
  spec.has_text_positions = true;
  return spec;
}

std::string LineErrorOf(const std::vector<int64_t>& ids, const std::vector<ImageGrid>& grids) {
  return std::string(PlaceImages(LineSpec(), ids, grids).status().message());
}

constexpr int64_t kBreak = 38;
constexpr int64_t kEnd = 39;

TEST(ImagePlaces, LinesOfPlaceholdersHaveTextBetweenThem) {
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(LineSpec(),
                                                             {5, kImage, kImage, kBreak, kImage,
                                                              kImage, kEnd, kImage, kEnd, kVideo},
                                                             {{4, 4}, {2, 2}}));
  EXPECT_THAT(places.tokens, ElementsAre(1, 2, 4, 5, 7));
  for (const std::vector<int64_t>& axis : places.positions) {
    EXPECT_THAT(axis, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  }
  EXPECT_EQ(places.next_position, 10);
  EXPECT_THAT(places.TokensIn(2, 5), ElementsAre(2, 4));
}

TEST(ImagePlaces, AnImageMayEndASequenceOfLines) {
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places,
                       PlaceImages(LineSpec(), {kImage, kBreak, kImage}, {{4, 2}}));
  EXPECT_THAT(places.tokens, ElementsAre(0, 2));
}

TEST(ImagePlaces, NamesTheLineThatDoesNotEnd) {
  EXPECT_THAT(
      LineErrorOf({kImage, kImage, kImage, kImage}, {{4, 4}}),
      HasSubstr("images[0]: expected 2 lines of 2 placeholders, each followed by a token of "
                "text, found none behind line 0, at token 2"));
  EXPECT_THAT(LineErrorOf({kImage, kImage}, {{4, 4}}), HasSubstr("behind line 0, at token 2"));
  EXPECT_THAT(
      LineErrorOf({kImage, kBreak, kImage, kImage, kEnd}, {{4, 2}, {2, 2}}),
      HasSubstr("images[0]: expected 2 lines of 1 placeholders, each followed by a token of "
                "text, found none behind line 1, at token 3"));
}

TEST(ImagePlaces, NamesTheImageWhoseLinesAreShorter) {
  // Two columns and four rows where there are four columns and two rows.
  EXPECT_THAT(LineErrorOf({kImage, kImage, kBreak, kImage, kImage, kEnd}, {{2, 8}}),
              HasSubstr("images[0]: expected 4 placeholders, one for each of 1 x 4 rows, found 2 "
                        "before token 2"));
}

// Tiles of one row, and any text between them, as Idefics 3 has.
VisionSpec NamedTileSpec() {
  VisionSpec spec = TileTower(false);
  spec.merge_size = 4;
  spec.tiles->text_between = true;
  return spec;
}

TEST(ImagePlaces, TilesHaveTextBetweenThem) {
  VisionSpec spec = NamedTileSpec();
  spec.merge_size = 2;  // four rows
  const std::vector<int64_t> ids = {5, kImage, kImage, kImage, kImage, 6,
                                    7, kImage, kImage, kImage, kImage, 6};
  ASSERT_OK_AND_ASSIGN(const ImagePlaces places, PlaceImages(spec, ids, {{8, 4}}));
  EXPECT_THAT(places.tokens, ElementsAre(1, 2, 3, 4, 7, 8, 9, 10));
  EXPECT_EQ(places.next_position, 12);
  // Images may follow each other, as one has text behind its last tile.
  ASSERT_OK_AND_ASSIGN(const ImagePlaces two, PlaceImages(spec, ids, {{4, 4}, {4, 4}}));
  EXPECT_EQ(two.tokens, places.tokens);
}

TEST(ImagePlaces, NamesTheTileThatDoesNotFit) {
  const auto error_of = [](const std::vector<int64_t>& ids, const std::vector<ImageGrid>& grids) {
    return std::string(PlaceImages(NamedTileSpec(), ids, grids).status().message());
  };
  EXPECT_THAT(error_of({kImage, kImage}, {{8, 4}}),
              HasSubstr("images[0]: expected 2 lines of 1 placeholders, each followed by a token "
                        "of text, found none behind line 0, at token 1"));
  EXPECT_THAT(error_of({kImage, 5, kImage, kImage}, {{8, 4}}), HasSubstr("behind line 1"));
  EXPECT_THAT(error_of({kImage, 5, 6}, {{8, 4}}),
              HasSubstr("images[0]: expected 2 placeholders, one for each of 1 rows of 2 tiles, "
                        "found 1 before token 3"));
  EXPECT_THAT(error_of({kImage, 5, kImage, 6}, {{4, 4}}),
              HasSubstr("token 2: id 36 stands for a row of an image, and no image is left"));
}

}  // namespace
}  // namespace tandem::model
