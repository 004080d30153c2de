// A few characters never become gigabytes, whatever the rules of tokenizer.json say.
#include "common/tokenizer/growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kExhausted = absl::StatusCode::kResourceExhausted;

// `count` rules, each of which makes ten of every character.
std::string TenfoldRules(int count, const std::string& type, const std::string& list) {
  std::string rules;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&rules, i == 0 ? "" : ",",
                    R"({"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaaaaaaaa"})");
  }
  return absl::StrCat(", \"", type, R"(": {"type": "Sequence", ")", list, "\": [", rules, "]}");
}

TEST(TokenizerGrowth, ChainsOfReplaceNormalizersAreStopped) {
  const auto tokenizer =
      LoadJson(WordLevelJson(R"({"<unk>": 0})", TenfoldRules(9, "normalizer", "normalizers")));
  ASSERT_OK(tokenizer.status());
  EXPECT_THAT((*tokenizer)->Encode("hello", false),
              StatusIs(kExhausted,
                       AllOf(HasSubstr("tokenizer.json: the normalizer Replace"),
                             HasSubstr(absl::StrCat("more than ", MaxBytesFrom(5), " bytes")))));
  EXPECT_OK((*tokenizer)->Encode("", false).status());
}

TEST(TokenizerGrowth, ChainsOfReplaceDecodersAreStopped) {
  const auto tokenizer = LoadJson(
      WordLevelJson(R"({"<unk>": 0, "hello": 1})", TenfoldRules(9, "decoder", "decoders")));
  ASSERT_OK(tokenizer.status());
  EXPECT_THAT((*tokenizer)->Decode({1}, false),
              StatusIs(kExhausted, HasSubstr("tokenizer.json: the decoder Replace")));
}

TEST(TokenizerGrowth, ChainsOfByteLevelPreTokenizersAreStopped) {
  std::string rules;
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&rules, i == 0 ? "" : ",", R"({"type": "ByteLevel", "use_regex": false})");
  }
  const auto tokenizer = LoadJson(WordLevelJson(
      R"({"<unk>": 0})",
      absl::StrCat(R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)", rules, "]}")));
  ASSERT_OK(tokenizer.status());
  EXPECT_THAT((*tokenizer)->Encode("\u00e9", false),
              StatusIs(kExhausted, HasSubstr("tokenizer.json: the pre-tokenizer ByteLevel")));
}

TEST(TokenizerGrowth, AnAddedTokenOfWhiteSpaceTakesLinearTime) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(WordLevelJson(
          R"({"<unk>": 0})",
          R"(, "added_tokens": [{"id": 1, "content": " ", "rstrip": true, "special": true}])")));
  const absl::Time start = absl::Now();

  ASSERT_OK_AND_ASSIGN(const auto ids, tokenizer->Encode(std::string(300000, ' ') + "\n ", false));

  // Tokens may take white space that an earlier one has taken, like in the reference.
  EXPECT_EQ(ids.size(), 300001u);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));  // minutes if each walks through what follows
}

TEST(TokenizerGrowth, AddedTokensAreNormalizedWithinTheLimitToo) {
  EXPECT_THAT(
      LoadJson(WordLevelJson(
          R"({"<unk>": 0})",
          absl::StrCat(TenfoldRules(9, "normalizer", "normalizers"),
                       R"(, "added_tokens": [{"id": 1, "content": "x", "normalized": true}])"))),
      StatusIs(kExhausted, HasSubstr("normalizer Replace")));
}

TEST(TokenizerGrowth, AddedTokensTogetherHaveALimitToo) {
  std::string tokens;  // 60 KB each when normalized
  for (int i = 0; i < 80; ++i) {
    absl::StrAppend(&tokens, i == 0 ? "" : ",", R"({"content": "x)", i,
                    R"(", "normalized": true})");
  }
  EXPECT_THAT(LoadJson(WordLevelJson(
                  R"({"<unk>": 0})",
                  absl::StrCat(R"(, "normalizer": {"type": "Replace", "pattern": {"String": "x"},
                                    "content": ")",
                               std::string(60000, 'a'), R"("}, "added_tokens": [)", tokens, "]"))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("added_tokens: the normalized tokens have more than")));
}

TEST(TokenizerGrowth, OrdinaryRulesHaveRoom) {
  const auto tokenizer = LoadJson(
      WordLevelJson(R"({"<unk>": 0})",
                    R"(, "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKD"},
           {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})"));
  ASSERT_OK(tokenizer.status());
  std::string text;  // of one character NFKD makes eighteen
  for (int i = 0; i < 100000; ++i) text += "\uFDFA ";
  EXPECT_OK((*tokenizer)->Encode(text, false).status());
}

TEST(TokenizerGrowth, NothingThatGrewNotAtAllIsTooLarge) {
  EXPECT_EQ(MaxBytesFrom(0), kFreeGrowthBytes);
  EXPECT_EQ(MaxBytesFrom(1 << 20), (size_t{16} << 20) + kFreeGrowthBytes);
  EXPECT_EQ(MaxBytesFrom(size_t{100} << 20), kMaxGrownBytes);
  EXPECT_EQ(MaxBytesFrom(size_t{1} << 40), size_t{1} << 40);
}

}  // namespace
}  // namespace tandem::tokenizer
