#include "common/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kSplitDot[] =
    R"(, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false})";

TEST(Tokenizer, MapsUnknownCharactersToTheUnknownToken) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(WordLevelJson(R"({"<unk>": 0, "1": 1, ",": 2})", kSplitDot)));
  EXPECT_THAT(tokenizer->Encode("1,x\n1", false),
              testing::IsOkAndHolds(ElementsAre(1, 2, 0, 0, 1)));
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(WordLevelJson(R"({"<unk>": 0})")));
  EXPECT_THAT(tokenizer->Encode("abc\xFF", false),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte offset 3")));
}

TEST(Tokenizer, CutsOutAddedTokensByTheirFlags) {
  const std::string json = WordLevelJson(R"({"<unk>": 0, "a": 1, " a": 2, "a ": 3})",
                                         R"(, "added_tokens": [
        {"id": 4, "content": "<l>", "lstrip": true, "normalized": false},
        {"id": 5, "content": "<r>", "rstrip": true, "normalized": false},
        {"id": 6, "content": "word", "single_word": true, "normalized": false},
        {"id": 7, "content": "<ll>", "normalized": false}])");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(json));
  EXPECT_THAT(tokenizer->Encode("a <l> a", false), testing::IsOkAndHolds(ElementsAre(1, 4, 2)));
  EXPECT_THAT(tokenizer->Encode("a <r> a", false), testing::IsOkAndHolds(ElementsAre(3, 5, 1)));
  EXPECT_THAT(tokenizer->Encode("word", false), testing::IsOkAndHolds(ElementsAre(6)));
  EXPECT_THAT(tokenizer->Encode("words", false), testing::IsOkAndHolds(ElementsAre(0)));
  EXPECT_THAT(tokenizer->Encode("<ll>", false), testing::IsOkAndHolds(ElementsAre(7)));
  EXPECT_EQ(tokenizer->vocab_size(), 8u);
}

TEST(Tokenizer, AddsSpecialTokensOnRequest) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(WordLevelJson(R"({"<unk>": 0, "a": 1, "<s>": 2})",
                                              R"(, "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}})")));
  EXPECT_THAT(tokenizer->Encode("a", true), testing::IsOkAndHolds(ElementsAre(2, 1)));
  EXPECT_THAT(tokenizer->Encode("a", false), testing::IsOkAndHolds(ElementsAre(1)));
  EXPECT_THAT(tokenizer->Encode("", true), testing::IsOkAndHolds(ElementsAre(2)));
}

TEST(Tokenizer, TakesSpecialIdsFromTheConfiguration) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", WordLevelJson(R"({"<unk>": 0, "</s>": 1, "<pad>": 2})"));
  folder.Write("tokenizer_config.json",
               R"({"eos_token": {"content": "</s>", "special": true}, "bos_token": null})");
  folder.Write("special_tokens_map.json", R"({"pad_token": "<pad>", "eos_token": "<unk>"})");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(folder.path()));
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_EQ(tokenizer->pad_id(), 2);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->TokenToId("</s>"), 1);
  EXPECT_EQ(*tokenizer->IdToToken(2), "<pad>");
  EXPECT_EQ(tokenizer->IdToToken(3), nullptr);
}

TEST(Tokenizer, EncodesFromManyThreads) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(
          R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})"));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&tokenizer, i] {
      for (int k = 0; k < 2000; ++k) {
        const std::string word = "ab" + std::string(static_cast<size_t>((i + k) % 7), 'a');
        const auto ids = tokenizer->Encode(word + " ab", false);
        ASSERT_OK(ids.status());
        ASSERT_EQ(ids->front(), 2);
        ASSERT_EQ(ids->back(), 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tandem::tokenizer
