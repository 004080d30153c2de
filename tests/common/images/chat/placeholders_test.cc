#include "common/images/chat/placeholders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/images/chat/chat_images.h"
#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr PlaceholderIds kPlain{.placeholder = 7};
constexpr PlaceholderIds kLines{.placeholder = 7, .line_break = 8, .end = 9};
constexpr PlaceholderIds kBounds{.placeholder = 7, .start = 8, .end = 9};
const PlaceholderTexts kTexts{
    .placeholder = "[IMG]", .start = "<img>", .line_break = "[IMG_BREAK]", .end = "[IMG_END]"};

std::vector<PlaceholderGrid> GridsIn(const PlaceholderIds& ids,
                                     const std::vector<uint32_t>& token_ids) {
  std::vector<PlaceholderGrid> grids;
  for (const PlacedPlaceholders& image : FindPlaceholders(ids, token_ids)) {
    grids.push_back(image.grid);
  }
  return grids;
}

TEST(Placeholders, StandInLinesWhereTheModelHasThem) {
  const std::vector<ChatImage> images = {{"a", "first"}, {"b", "second"}};
  EXPECT_THAT(ExpandPlaceholders({1, 7, 7, 2}, kLines, images, {{2, 3}, {1, 1}}),
              IsOkAndHolds(ElementsAre(1, 7, 7, 7, 8, 7, 7, 7, 9, 7, 9, 2)));
  EXPECT_THAT(ExpandPlaceholders({1, 7, 7, 2}, kPlain, images, {{2, 2}, {1, 1}}),
              IsOkAndHolds(ElementsAre(1, 7, 7, 7, 7, 7, 2)));
}

TEST(Placeholders, StandBetweenTheTokensThatTheModelHasAroundThem) {
  const std::vector<ChatImage> images = {{"a", "first"}, {"b", "second"}};
  EXPECT_THAT(ExpandPlaceholders({1, 7, 2, 7}, kBounds, images, {{1, 3}, {1, 1}}),
              IsOkAndHolds(ElementsAre(1, 8, 7, 7, 7, 9, 2, 8, 7, 9)));
  PlaceholderIds all = kLines;
  all.start = 6;
  EXPECT_THAT(ExpandPlaceholders({7}, all, {{"a", "first"}}, {{2, 1}}),
              IsOkAndHolds(ElementsAre(6, 7, 8, 7, 9)));
}

TEST(Placeholders, AreFoundAgain) {
  EXPECT_THAT(GridsIn(kLines, {1, 7, 7, 7, 8, 7, 7, 7, 9, 7, 9, 2, 8, 7, 9}),
              ElementsAre(PlaceholderGrid{2, 3}, PlaceholderGrid{1, 1}, PlaceholderGrid{1, 1}));
  EXPECT_THAT(GridsIn(kPlain, {7, 7, 1, 7, 8, 7}),
              ElementsAre(PlaceholderGrid{1, 2}, PlaceholderGrid{1, 1}, PlaceholderGrid{1, 1}));
  EXPECT_THAT(GridsIn(kBounds, {1, 8, 7, 7, 7, 9, 8, 7, 9}),
              ElementsAre(PlaceholderGrid{1, 3}, PlaceholderGrid{1, 1}));
  EXPECT_THAT(GridsIn(kLines, {1, 8, 9}), IsEmpty());
}

TEST(Placeholders, OfTheSameNumberAreFoundNextToEachOther) {
  PlaceholderIds ids = kPlain;
  ids.fixed_count = 2;
  EXPECT_THAT(GridsIn(ids, {7, 7, 7, 7, 1, 7, 7}),
              ElementsAre(PlaceholderGrid{1, 2}, PlaceholderGrid{1, 2}, PlaceholderGrid{1, 2}));
}

TEST(Placeholders, LieFromTheFirstToTheLast) {
  EXPECT_THAT(FindPlaceholders(kLines, {1, 7, 7, 8, 7, 7, 9, 7, 9}),
              ElementsAre(PlacedPlaceholders{1, 6, {2, 2}}, PlacedPlaceholders{7, 8, {1, 1}}));
}

TEST(Placeholders, NameTheTokenThatATokenizerLacks) {
  const auto id_of = [](const std::string& token) -> std::optional<int32_t> {
    if (token == "[IMG_BREAK]") return 8;
    if (token == "<img>") return 6;
    return std::nullopt;
  };
  EXPECT_THAT(FindPlaceholderIds(7, kTexts, id_of),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("the tokenizer has no token [IMG_END]")));
  ASSERT_OK_AND_ASSIGN(
      const PlaceholderIds ids,
      FindPlaceholderIds(7, {.placeholder = "<image>", .start = "<img>", .fixed_count = 3}, id_of));
  EXPECT_EQ(ids.placeholder, 7);
  EXPECT_EQ(ids.start, 6);
  EXPECT_EQ(ids.fixed_count, 3);
  EXPECT_FALSE(ids.line_break.has_value());
  EXPECT_FALSE(ids.end.has_value());
}

}  // namespace
}  // namespace tandem::images
