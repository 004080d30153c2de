#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::testing::ElementsAre;

// What each id yields, and what the end does.
std::vector<std::string> Steps(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer, true);
  std::vector<std::string> out;
  for (int32_t id : ids) out.push_back(decoder.Push(id).value());
  out.push_back(decoder.Finish().value());
  return out;
}

TEST(IncrementalDecoder, HoldsBytesBackUntilTheCharacterIsWhole) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(WordLevelJson(R"({"a": 0, "ä": 1, "¸": 2, "Ń": 3})",
                                              R"(, "decoder": {"type": "ByteLevel"})")));
  EXPECT_THAT(Steps(*tokenizer, {0, 1, 2, 3, 0}), ElementsAre("a", "", "", "\u4E2D", "a", ""));
  EXPECT_THAT(Steps(*tokenizer, {1, 2}), ElementsAre("", "", "\uFFFD"));
  EXPECT_THAT(Steps(*tokenizer, {1, 0}), ElementsAre("", "\uFFFDa", ""));
}

constexpr char kLlamaDecoder[] = R"(, "decoder": {"type": "Sequence", "decoders": [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

TEST(IncrementalDecoder, StripsTheFirstSpaceOnly) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(WordLevelJson(R"({"▁a": 0, "▁": 1})", kLlamaDecoder)));
  EXPECT_THAT(Steps(*tokenizer, {0, 0}), ElementsAre("a", " a", ""));
  EXPECT_THAT(Steps(*tokenizer, {1, 1, 0}), ElementsAre("", " ", " a", ""));
}

TEST(IncrementalDecoder, DecidesARunOfByteTokensAtItsEnd) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(WordLevelJson(R"({"<0xC3>": 0, "<0xA9>": 1, "x": 2})", kLlamaDecoder)));
  EXPECT_THAT(Steps(*tokenizer, {0, 1, 2}), ElementsAre("", "", "éx", ""));
  EXPECT_THAT(Steps(*tokenizer, {0, 1, 0}), ElementsAre("", "", "", "\uFFFD\uFFFD\uFFFD"));
}

TEST(IncrementalDecoder, HoldsBackWhatTheEndMayStrip) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(WordLevelJson(R"({"a": 0, " ": 1})",
                             R"(, "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
                                {"type": "Strip", "content": " ", "start": 0, "stop": 1}]})")));
  EXPECT_THAT(Steps(*tokenizer, {0, 1, 0, 1, 1}), ElementsAre("a", "", " a", "", " ", ""));
}

TEST(Decode, LeavesOutSpecialTokensEvenWhereTheyAreNormalized) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(WordLevelJson(R"({"a": 0, "<s>": 1})",
                             R"(, "normalizer": {"type": "Prepend", "prepend": "_"},
                                "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": true}],
                                "decoder": {"type": "Fuse"})")));
  EXPECT_THAT(tokenizer->Decode({1, 0}, true), testing::IsOkAndHolds("a"));
  EXPECT_THAT(tokenizer->Decode({1, 0}, false), testing::IsOkAndHolds("_<s>a"));
}

TEST(Decode, LeavesOutIdsWithoutATokenAndRefusesNegativeOnes) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(WordLevelJson(R"({"a": 0})")));
  EXPECT_THAT(tokenizer->Decode({0, 2147483647, 0}, true), testing::IsOkAndHolds("a a"));
  EXPECT_THAT(tokenizer->Decode({-1}, true),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("-1")));
}

}  // namespace
}  // namespace tandem::tokenizer
