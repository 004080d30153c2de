#include "common/images/chat/placeholders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "common/images/chat/chat_images.h"
#include "tests/support/status_matchers.h"

namespace tandem::images {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const PlaceholderIds kPlain{.placeholder = 7};
const PlaceholderIds kLines{.placeholder = 7, .line_break = 8, .end = 9};
const PlaceholderIds kBounds{.placeholder = 7, .start = 8, .end = 9};
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

// An image alone has any number, those of several have one.
TEST(Placeholders, ThatImagesHaveAmongOthersAreFoundNextToEachOther) {
  PlaceholderIds ids = kPlain;
  ids.count_among_others = 2;
  EXPECT_THAT(GridsIn(ids, {7, 7, 7, 7, 1, 7, 7, 1, 7, 7, 7}),
              ElementsAre(PlaceholderGrid{1, 2}, PlaceholderGrid{1, 2}, PlaceholderGrid{1, 2},
                          PlaceholderGrid{1, 3}));
  EXPECT_THAT(FindPlaceholders(ids, {7, 7, 7, 7, 1}, 2),
              ElementsAre(PlacedPlaceholders{0, 2, {1, 2}}, PlacedPlaceholders{2, 4, {1, 2}}));
  EXPECT_THAT(FindPlaceholders(ids, {7, 7, 7, 7, 1}, 1),
              ElementsAre(PlacedPlaceholders{0, 4, {1, 4}}));
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

TEST(Placeholders, AreWrittenOutBeforeATextBecomesTokens) {
  const PlaceholderTexts texts{
      .placeholder = "<soft>", .written = "<start>", .written_out = "[<soft>]"};
  const auto ids_of = [](int32_t id) {
    return [id](const std::string& token) {
      return token == "<soft>" ? std::optional<int32_t>(id) : std::nullopt;
    };
  };
  ASSERT_OK_AND_ASSIGN(const PlaceholderIds ids, FindPlaceholderIds(7, texts, ids_of(7)));
  EXPECT_EQ(TextForTokens(ids, "a<start><start>b"), "a[<soft>][<soft>]b");
  EXPECT_EQ(TextForTokens({.placeholder = 7}, "a<start>b"), "a<start>b");
  EXPECT_THAT(
      FindPlaceholderIds(8, texts, ids_of(7)).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no token <soft> with the id 8")));
}

// Tokens of 1 to 99; 2 x 2 tiles have names of two tokens.
PlaceholderIds NamedTiles() {
  PlaceholderIds ids{.placeholder = 7, .start = 8, .end = 8};
  ids.tiles =
      std::make_shared<const TileIds>(TileIds{.whole = {20},
                                              .line = {30},
                                              .last_line = {31},
                                              .max_side = 2,
                                              .names = {{11, 1}, {11, 2}, {12, 1}, {12, 2}}});
  return ids;
}

TEST(Placeholders, OfTilesHaveNamesBetweenThem) {
  const std::vector<ChatImage> images = {{"a", "first"}, {"b", "second"}, {"c", "third"}};
  const std::vector<int32_t> ids = {1, 8,  11, 1, 7,  7,  8, 11, 2,  7, 7,  30, 8, 12,
                                    1, 7,  7,  8, 12, 2,  7, 7,  31, 8, 20, 7,  7, 8,
                                    8, 20, 7,  8, 8,  11, 1, 7,  31, 8, 20, 7,  8, 2};
  EXPECT_THAT(
      ExpandPlaceholders({1, 7, 7, 7, 2}, NamedTiles(), images, {{5, 2, 2}, {1, 1, 0}, {2, 1, 1}}),
      IsOkAndHolds(ids));
  EXPECT_THAT(FindPlaceholders(NamedTiles(), std::vector<uint32_t>(ids.begin(), ids.end())),
              ElementsAre(PlacedPlaceholders{4, 27, {5, 2, 2}}, PlacedPlaceholders{30, 31, {1, 1}},
                          PlacedPlaceholders{35, 40, {2, 1, 1}}));
}

// What no processor writes is some image all the same, and none that cannot be written.
TEST(Placeholders, OfTilesInAnyOrderAreFound) {
  const std::vector<std::vector<uint32_t>> all = {
      {7, 7, 1, 7},                                       // without names
      {8, 11, 1, 7, 8, 12, 1, 7, 8, 12, 2, 7, 8, 20, 7},  // a longer second line
      {8, 11, 2, 7, 8, 20, 7},                            // without the first
      {8, 11, 1, 7, 8, 11, 2, 7, 8, 12, 1, 7},            // without the whole
  };
  const std::vector<std::vector<PlaceholderGrid>> grids = {
      {{1, 2}, {1, 1}}, {{2, 1, 1}, {1, 1}, {1, 1}}, {{1, 1}, {1, 1}}, {{3, 1, 2}}};
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(GridsIn(NamedTiles(), all[i]), grids[i]) << i;
    for (const PlaceholderGrid& grid : grids[i]) {
      std::vector<int32_t> out;
      AppendPlaceholders(NamedTiles(), grid, &out);
      EXPECT_EQ(std::count(out.begin(), out.end(), 7), grid.count()) << i;
    }
  }
}

TEST(Placeholders, NamesOfTilesAreWhatTheTokenizerMakesOfThem) {
  const PlaceholderTexts texts{.placeholder = "<image>",
                               .start = "<fake>",
                               .end = "<fake>",
                               .tiles = TileTexts{"<global-img>", 2}};
  const auto id_of = [](const std::string&) { return std::optional<int32_t>(8); };
  std::vector<std::string> seen;
  const auto encode = [&](const std::string& text) -> absl::StatusOr<std::vector<int32_t>> {
    const bool is_name = text.rfind("<fake>", 0) == 0;
    seen.push_back(text);
    const auto number = static_cast<int32_t>(10 + seen.size());
    return is_name ? std::vector<int32_t>{8, number, 7} : std::vector<int32_t>{7, number, 8};
  };
  ASSERT_OK_AND_ASSIGN(const PlaceholderIds ids, FindPlaceholderIds(7, texts, id_of, encode));
  EXPECT_THAT(seen, ElementsAre("<fake><global-img><image>", "<image>\n<fake>", "<image>\n\n<fake>",
                                "<fake><row_1_col_1><image>", "<fake><row_1_col_2><image>",
                                "<fake><row_2_col_1><image>", "<fake><row_2_col_2><image>"));
  EXPECT_THAT(ids.tiles->whole, ElementsAre(11));
  EXPECT_THAT(ids.tiles->line, ElementsAre(12));
  EXPECT_THAT(ids.tiles->last_line, ElementsAre(13));
  EXPECT_THAT(ids.tiles->At(1, 0), ElementsAre(16));
  // One that does not know the bounds where they stand.
  const auto merge = [](const std::string&) -> absl::StatusOr<std::vector<int32_t>> {
    return std::vector<int32_t>{8, 9};
  };
  EXPECT_THAT(FindPlaceholderIds(7, texts, id_of, merge),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("does not keep <fake> and <image> apart")));
}

}  // namespace
}  // namespace tandem::images
