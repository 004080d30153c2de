#include "common/tokenizer/unicode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::testing::HasSubstr;

TEST(ValidateUtf8, NamesTheOffsetOfTheFirstBadByte) {
  EXPECT_OK(ValidateUtf8("a\xC3\xA9\xF0\x9F\x98\x80"));
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xF5", "\xC3"}) {
    EXPECT_THAT(ValidateUtf8(std::string("ab") + bad),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte offset 2")));
  }
}

TEST(IllFormedLength, CoversTheLongestPrefixOfACharacter) {
  bool incomplete;
  EXPECT_EQ(IllFormedLength("\xE4\xB8", &incomplete), 2u);
  EXPECT_TRUE(incomplete);
  EXPECT_EQ(IllFormedLength("\xE4\xB8z", &incomplete), 2u);
  EXPECT_FALSE(incomplete);
  EXPECT_EQ(IllFormedLength("\xE0\x80", &incomplete), 1u);
  EXPECT_FALSE(incomplete);
  EXPECT_EQ(IllFormedLength("\x80\x80", &incomplete), 1u);
  EXPECT_FALSE(incomplete);
}

TEST(Normalize, ComposesAndDecomposes) {
  EXPECT_EQ(Normalize("e\xCC\x81", NormalizationForm::kNfc), "\xC3\xA9");
  EXPECT_EQ(Normalize("\xC3\xA9", NormalizationForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(Normalize("\xEF\xAC\x81", NormalizationForm::kNfkc), "fi");
  // Marks below (220) come before marks above (230).
  EXPECT_EQ(Normalize("a\xCC\x81\xCC\xA3", NormalizationForm::kNfd), "a\xCC\xA3\xCC\x81");
}

TEST(Normalize, LeavesAloneWhatTheReferenceTablesDoNotKnow) {
  EXPECT_EQ(Normalize("\u32FF", NormalizationForm::kNfkc), "\u32FF");
  EXPECT_EQ(Normalize("\U0001E030", NormalizationForm::kNfkd), "\U0001E030");
}

TEST(Normalize, TakesLongRunsOfMarksInOneSort) {
  std::string marks = "a";
  for (int i = 0; i < 100000; ++i) marks += i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3";
  const std::string sorted = Normalize(marks, NormalizationForm::kNfd);
  EXPECT_EQ(sorted.size(), marks.size());
  EXPECT_EQ(sorted.substr(1, 2), "\xCC\xA3");
  EXPECT_EQ(sorted.substr(sorted.size() - 2), "\xCC\x81");
}

TEST(Lowercase, MapsEachCharacterByItself) {
  EXPECT_EQ(Lowercase("AΣ\u0130\u1C89"), "aσi\u0307\u1C8A");
}

TEST(GeneralCategory, KnowsUnicode16) {
  EXPECT_EQ(GeneralCategory(0x10D40), kNd);
  EXPECT_EQ(GeneralCategory('A'), kLu);
  EXPECT_TRUE(IsWord(0x0301));
  EXPECT_FALSE(IsWord('-'));
  EXPECT_TRUE(IsPunctuation('$'));
  EXPECT_FALSE(IsWhitespace(0x180E));
}

}  // namespace
}  // namespace tandem::tokenizer
