#include "common/tokenizer/word_piece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WordPieceJson(const std::string& rest) {
  return absl::StrCat(R"({"pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {
      "type": "WordPiece", "vocab": {"[UNK]": 0, "un": 1, "##aff": 2, "##able": 3, "##a": 4,
      "una": 5, "##": 6, "able": 7})",
                      rest, "}}");
}

TEST(WordPiece, TakesTheLongestTokenEachTime) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(WordPieceJson("")));
  EXPECT_THAT(tokenizer->Encode("un able", false), IsOkAndHolds(ElementsAre(1, 7)));
  EXPECT_THAT(tokenizer->Encode("unable", false), IsOkAndHolds(ElementsAre(0)));  // una, no ##ble
  EXPECT_THAT(tokenizer->Encode("unaaffable", false), IsOkAndHolds(ElementsAre(5, 2, 3)));
}

TEST(WordPiece, MakesOneUnknownTokenOfAWordThatDoesNotFit) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(WordPieceJson(R"(, "max_input_chars_per_word": 5)")));
  EXPECT_THAT(tokenizer->Encode("un unx un", false), IsOkAndHolds(ElementsAre(1, 0, 1)));
  EXPECT_THAT(tokenizer->Encode("unaaa", false), IsOkAndHolds(ElementsAre(5, 4, 4)));
  EXPECT_THAT(tokenizer->Encode("unaaaa", false), IsOkAndHolds(ElementsAre(0)));
}

TEST(WordPiece, ContinuesWithAnotherPrefix) {
  ASSERT_OK_AND_ASSIGN(const auto bare,
                       LoadJson(WordPieceJson(R"(, "continuing_subword_prefix": "")")));
  EXPECT_THAT(bare->Encode("unable", false), IsOkAndHolds(ElementsAre(0)));  // una again
  EXPECT_THAT(bare->Encode("ableun", false), IsOkAndHolds(ElementsAre(7, 1)));
  ASSERT_OK_AND_ASSIGN(const auto none,
                       LoadJson(WordPieceJson(R"(, "continuing_subword_prefix": "@@")")));
  EXPECT_THAT(none->Encode("un unaff", false), IsOkAndHolds(ElementsAre(1, 0)));
}

TEST(WordPiece, NeedsAnUnknownTokenOnlyForUnknownWords) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(WordPieceJson(R"(, "unk_token": "none")")));
  EXPECT_THAT(tokenizer->Encode("un", false), IsOkAndHolds(ElementsAre(1)));
  EXPECT_THAT(tokenizer->Encode("x", false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.unk_token 'none'")));
}

TEST(WordPiece, BertPutsItsTokensAround) {
  for (const char* type : {"BertProcessing", "RobertaProcessing"}) {
    const std::string json =
        absl::StrCat(R"({"post_processor": {"type": ")", type,
                     R"(", "sep": ["s", 8], "cls": ["c", 9]}, )", WordPieceJson("").substr(1));
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(json));
    EXPECT_THAT(tokenizer->Encode("un", true), IsOkAndHolds(ElementsAre(9, 1, 8)));
    EXPECT_THAT(tokenizer->Encode("un", false), IsOkAndHolds(ElementsAre(1)));
  }
}

}  // namespace
}  // namespace tandem::tokenizer
