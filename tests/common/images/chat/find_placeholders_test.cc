#include "common/images/chat/find_placeholders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/character_tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::images {
namespace {

using ::tandem::testing::AddedToken;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

class FindPlaceholderIdsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    nlohmann::json added = nlohmann::json::array();
    for (const auto& [id, text] : {std::pair(2, "<soft>"), std::pair(3, "<other>")}) {
      added.push_back(AddedToken(id, text, /*special=*/true));
    }
    folder_.Write("tokenizer.json",
                  testing::CharacterTokenizer({{"<unk>", 0}, {"a", 1}}, added).dump());
    ASSERT_OK_AND_ASSIGN(tokenizer_, tokenizer::Tokenizer::Load(folder_.path()));
  }

  const testing::TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(FindPlaceholderIdsTest, AModelMayGiveItByTheIdAlone) {
  EXPECT_OK(FindPlaceholderIds(3, {.fixed_count = 3}, tokenizer_.get()).status());
  ASSERT_OK_AND_ASSIGN(const PlaceholderIds ids,
                       FindPlaceholderIds(3, {.fixed_count = 3, .count_among_others = 4}, nullptr));
  EXPECT_EQ(ids.placeholder, 3);
  EXPECT_EQ(ids.fixed_count, 3);
  EXPECT_EQ(ids.count_among_others, 4);
}

// What takes the place of a template's text has the placeholder by its text.
TEST_F(FindPlaceholderIdsTest, OneThatAProcessorWritesMustBeTheTokenizers) {
  const PlaceholderTexts texts{
      .placeholder = "<soft>", .written = "<start>", .written_out = "[<soft>]"};
  EXPECT_OK(FindPlaceholderIds(2, texts, tokenizer_.get()).status());
  EXPECT_THAT(
      FindPlaceholderIds(3, texts, tokenizer_.get()).status(),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no token <soft> with the id 3")));
}

}  // namespace
}  // namespace tandem::images
