#include "common/tokenizer/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(absl::string_view pattern, const std::string& text) {
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern);
  EXPECT_OK(regex.status());
  std::vector<Match> found;
  std::vector<std::string> out;
  if (!regex.ok()) return out;
  EXPECT_OK(regex->FindAll(text, &found));
  for (const Match& match : found) out.push_back(text.substr(match.begin, match.end - match.begin));
  return out;
}

TEST(Regex, DotLeavesOutTheNewlineOnly) {
  EXPECT_THAT(Matches(".", "a\n\r\u2028"), ElementsAre("a", "\r", "\u2028"));
  EXPECT_THAT(Matches("(?m:.)", "a\n"), ElementsAre("a", "\n"));
}

TEST(Regex, SpaceIsTheWhiteSpaceProperty) {
  EXPECT_THAT(Matches("\\s", "\u180E\u0085\u00A0\u200B"), ElementsAre("\u0085", "\u00A0"));
  EXPECT_THAT(Matches("[^\\s]", " \u180E"), ElementsAre("\u180E"));
}

TEST(Regex, LettersAndNumbersAreThoseOfUnicode16) {
  EXPECT_THAT(Matches("\\p{L}+", "a\u1C89\U000105C0"), ElementsAre("a\u1C89\U000105C0"));
  EXPECT_THAT(Matches("\\p{N}", "\U00010D40"), ElementsAre("\U00010D40"));
  EXPECT_THAT(Matches("[^\\p{L}]", "\u1C89"), ElementsAre());
}

TEST(Regex, WordsHoldCombiningMarks) {
  EXPECT_THAT(Matches("\\w+", "e\u0301a-b"), ElementsAre("e\u0301a", "b"));
}

TEST(Regex, ComputesSetsThatPcre2CannotWrite) {
  EXPECT_THAT(Matches("[a-f&&[^cd]]+", "abcdef"), ElementsAre("ab", "ef"));
  EXPECT_THAT(Matches("[\\Wx]", "ax-"), ElementsAre("x", "-"));
  EXPECT_THAT(Matches("[a[0-3]]+", "a03b4"), ElementsAre("a03"));
}

TEST(Regex, IntervalWithPlusRepeatsTheInterval) {
  EXPECT_THAT(Matches("[0-9]{1,3}+", "12345"), ElementsAre("12345"));
}

TEST(Regex, SkipsAnEmptyMatchBehindAMatch) {
  EXPECT_THAT(Matches("a*", "aab"), ElementsAre("aa", ""));
}

TEST(Regex, LooksAheadAndIgnoresCaseWithinAGroup) {
  EXPECT_THAT(Matches("\\s+(?!\\S)|\\s+", "a   b"), ElementsAre("  ", " "));
  EXPECT_THAT(Matches("(?i:'s)|s", "'S s S 'ſ"), ElementsAre("'S", "s", "'ſ"));
}

TEST(Regex, LiteralMatchesItself) {
  std::vector<Match> found;
  ASSERT_OK(Regex::Literal(".*").FindAll("a.*b.*", &found));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].begin, 4u);
}

TEST(Regex, SaysWhyAPatternDoesNotCompile) {
  EXPECT_THAT(Regex::Compile("(a"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("(a")));
  EXPECT_THAT(Regex::Compile("\\p{Nonsense}"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("Nonsense")));
  EXPECT_THAT(Regex::Compile("[a"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("set")));
  EXPECT_FALSE(Regex::Compile(std::string(300, '(')).ok());
}

TEST(Regex, GivesUpOnRunawayBacktracking) {
  ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile("(?:a+)+$"));
  std::vector<Match> found;
  EXPECT_THAT(regex.FindAll(std::string(60, 'a') + "b", &found),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("(?:a+)+$")));
}

}  // namespace
}  // namespace tandem::tokenizer
