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
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kAbc[] =
    R"("vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5, "<unk>": 6})";

std::string Model(const std::string& members) { return "{\"model\": {" + members + "}}"; }

std::vector<int32_t> Ids(const std::string& model, const std::string& text) {
  const auto tokenizer = LoadJson(Model(model));
  EXPECT_OK(tokenizer.status());
  return tokenizer.ok() ? (*tokenizer)->Encode(text, false).value() : std::vector<int32_t>{-1};
}

TEST(Bpe, MergesTheLowestRankFirst) {
  const std::string vocab = kAbc;
  EXPECT_THAT(Ids(vocab + R"(, "merges": ["b c", "a b"])", "abc"), ElementsAre(0, 4));
  EXPECT_THAT(Ids(vocab + R"(, "merges": [["a", "b"], ["b", "c"], ["ab", "c"]])", "abcab"),
              ElementsAre(5, 3));
}

TEST(Bpe, DropsUnknownCharactersWithoutAnUnknownToken) {
  EXPECT_THAT(Ids(std::string(kAbc) + R"(, "merges": [])", "axb"), ElementsAre(0, 1));
}

TEST(Bpe, FusesUnknownCharactersOnRequest) {
  const std::string model = std::string(kAbc) + R"(, "merges": [], "unk_token": "<unk>")";
  EXPECT_THAT(Ids(model, "axyb"), ElementsAre(0, 6, 6, 1));
  EXPECT_THAT(Ids(model + R"(, "fuse_unk": true)", "axyb"), ElementsAre(0, 6, 1));
}

TEST(Bpe, FallsBackToBytes) {
  const std::string model =
      R"("type": "BPE", "vocab": {"a": 0, "<0xC3>": 1, "<0xA9>": 2, "<unk>": 3}, "merges": [],
         "byte_fallback": true, "unk_token": "<unk>")";
  EXPECT_THAT(Ids(model, "aéa"), ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(Ids(model, "ü"), ElementsAre(3));
}

TEST(Bpe, TakesAWholeWordWhenMergesAreIgnored) {
  const std::string model = std::string(kAbc) + R"(, "merges": [], "ignore_merges": true)";
  EXPECT_THAT(Ids(model, "abc"), ElementsAre(5));
  EXPECT_THAT(Ids(model, "abca"), ElementsAre(0, 1, 2, 0));
}

TEST(Bpe, MergesALongWordInReasonableTime) {
  const std::string vocab = R"("vocab": {"a": 0, "aa": 1, "aaaa": 2}, "merges": ["a a", "aa aa"])";
  EXPECT_EQ(Ids(vocab, std::string(1 << 18, 'a')).size(), size_t{1} << 16);
  EXPECT_THAT(Ids(vocab, ""), IsEmpty());
}

TEST(Bpe, NamesTheMergeThatIsWrong) {
  const std::string vocab = kAbc;
  EXPECT_THAT(
      LoadJson(Model(vocab + R"(, "merges": ["a b", "a z"])")),
      testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.merges[1]: 'z'")));
  EXPECT_THAT(LoadJson(Model(vocab + R"(, "merges": ["a b c"])")),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.merges[0]")));
  EXPECT_THAT(LoadJson(Model(vocab + R"(, "merges": [7])")),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.merges[0]")));
  EXPECT_THAT(LoadJson(Model(vocab + R"(, "merges": [], "dropout": 0.1)")),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("dropout")));
}

TEST(Bpe, SaysThatTheUnknownTokenIsUnknown) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       LoadJson(Model(R"("vocab": {"a": 0}, "merges": [], "unk_token": "?")")));
  EXPECT_THAT(tokenizer->Encode("ab", false),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unk_token '?'")));
}

}  // namespace
}  // namespace tandem::tokenizer
