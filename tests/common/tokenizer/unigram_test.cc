#include "common/tokenizer/unigram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalidArgument = absl::StatusCode::kInvalidArgument;

std::string UnigramJson(const std::string& vocab, const std::string& rest = "") {
  return absl::StrCat(R"({"model": {"type": "Unigram", "vocab": )", vocab, rest, "}}");
}

TEST(Unigram, TakesTheSplitWithTheHighestScore) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(UnigramJson(R"([["<unk>", 0], ["a", -1], ["b", -1], ["ab", -2.5], ["aab", -2.9]])",
                           R"(, "unk_id": 0)")));
  EXPECT_THAT(tokenizer->Encode("ab", false), IsOkAndHolds(ElementsAre(1, 2)));
  EXPECT_THAT(tokenizer->Encode("aab", false), IsOkAndHolds(ElementsAre(4)));
  EXPECT_THAT(tokenizer->Encode("aaab", false), IsOkAndHolds(ElementsAre(1, 4)));
}

// Tries every split, for random scores without ties.
TEST(Unigram, FindsWhatTryingEverySplitFinds) {
  std::mt19937 random(1);
  std::vector<std::string> tokens;
  for (const char* token : {"a", "b", "aa", "ab", "ba", "aba", "bab", "abba", "baab"}) {
    tokens.emplace_back(token);
  }
  for (int round = 0; round < 30; ++round) {
    std::vector<double> scores;
    nlohmann::json vocab = nlohmann::json::array();
    for (const std::string& token : tokens) {
      scores.push_back(-static_cast<double>(random()) / 1e9);
      vocab.push_back({token, scores.back()});
    }
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(UnigramJson(vocab.dump())));
    std::string text;
    for (int i = 0; i < 9; ++i) text.push_back(random() % 2 == 0 ? 'a' : 'b');
    std::vector<int32_t> best, path;
    double best_score = 0;
    const auto search = [&](const auto& self, size_t begin, double score) -> void {
      if (begin == text.size() && (best.empty() || score > best_score)) {
        best = path;
        best_score = score;
      }
      for (size_t id = 0; id < tokens.size(); ++id) {
        if (text.compare(begin, tokens[id].size(), tokens[id]) != 0) continue;
        path.push_back(static_cast<int32_t>(id));
        self(self, begin + tokens[id].size(), score + scores[id]);
        path.pop_back();
      }
    };
    search(search, 0, 0);
    EXPECT_THAT(tokenizer->Encode(text, false), IsOkAndHolds(best)) << text;
  }
}

TEST(Unigram, JoinsUnknownCharactersIntoOneToken) {
  const std::string vocab = R"([["<unk>", 0], ["a", -1], ["<0xC3>", 0], ["<0xA9>", 0]])";
  ASSERT_OK_AND_ASSIGN(const auto plain, LoadJson(UnigramJson(vocab, R"(, "unk_id": 0)")));
  EXPECT_THAT(plain->Encode("a\u00e9\u00e9a", false), IsOkAndHolds(ElementsAre(1, 0, 1)));
  ASSERT_OK_AND_ASSIGN(const auto bytes,
                       LoadJson(UnigramJson(vocab, R"(, "unk_id": 0, "byte_fallback": true)")));
  EXPECT_THAT(bytes->Encode("a\u00e9\u00e9a", false), IsOkAndHolds(ElementsAre(1, 2, 3, 2, 3, 1)));
  // Not all bytes of the run have tokens.
  EXPECT_THAT(bytes->Encode("\u00e9\u00e8", false), IsOkAndHolds(ElementsAre(0)));
}

TEST(Unigram, NeedsAnUnknownTokenOnlyForUnknownText) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(UnigramJson(R"([["a", -1]])")));
  EXPECT_THAT(tokenizer->Encode("aa", false), IsOkAndHolds(ElementsAre(0, 0)));
  EXPECT_THAT(tokenizer->Encode("ab", false),
              StatusIs(kInvalidArgument, HasSubstr("model.unk_id is not set")));
}

TEST(Unigram, ToleratesScoresWhoseSumsOverflow) {
  ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      LoadJson(UnigramJson(R"([["<unk>", 0], ["a", -1e308], ["b", 1e308], ["ba", 1.7e308]])",
                           R"(, "unk_id": 0)")));
  for (const char* text : {"aaaa", "bbbb", "aaaabbbb", "babababa", "zzzz"}) {
    EXPECT_OK(tokenizer->Encode(text, false).status());
  }
}

TEST(Unigram, NamesTheEntryThatIsWrong) {
  const auto expect = [](const std::string& vocab, const std::string& rest,
                         const std::string& message) {
    EXPECT_THAT(LoadJson(UnigramJson(vocab, rest)), StatusIs(kInvalidArgument, HasSubstr(message)));
  };
  expect(R"([["a", 0], ["b"]])", "", "model.vocab[1]: expected [\"token\", score]");
  expect(R"([["a", "0"]])", "", "model.vocab[0]");
  expect(R"({"a": 0})", "", "model.vocab: expected an array");
  expect(R"([["a", 1e999]])", "", "not valid JSON");
  expect(R"([["a", NaN]])", "", "not valid JSON");
  expect(R"([["a", 0]])", R"(, "unk_id": 1)", "the id 1 is not in a vocabulary of 1 tokens");
  expect(R"([["a", 0]])", R"(, "unk_id": -1)", "model.unk_id");
  expect(absl::StrCat(R"([[")", std::string(1025, 'a'), R"(", 0]])"), "",
         "model.vocab: a token of 1025 bytes; at most 1024");
}

}  // namespace
}  // namespace tandem::tokenizer
