#include "tools/tandem/driver/prompt_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::v1::DataConfig DataConfig() {
  config::v1::DataConfig config;
  config.set_prompt_key("prompt");
  config.set_answer_key("answer");
  config.set_max_prompt_length(8);
  config.set_shuffle(true);
  return config;
}

std::vector<int64_t> Rows(const std::vector<Prompt>& prompts) {
  std::vector<int64_t> rows;
  for (const Prompt& prompt : prompts) rows.push_back(prompt.row);
  return rows;
}

TEST(PromptSource, TokenisesPrefixPromptAndSuffix) {
  const TempFolder folder;
  ASSERT_OK_AND_ASSIGN(auto tokenizer, LoadTokenizerIfAny(WriteTinyModel(folder)));
  const std::string data = folder.Write("data.jsonl", R"({"prompt": "1+2", "answer": "3"})");
  config::v1::DataConfig config = DataConfig();
  config.set_prompt_prefix(",");
  config.set_prompt_suffix("=");

  ASSERT_OK_AND_ASSIGN(PromptSource source, PromptSource::Load({data}, config, tokenizer.get(), 0));

  ASSERT_EQ(source.prompts().size(), 1);
  EXPECT_EQ(source.prompts()[0].text, ",1+2=");
  EXPECT_THAT(source.prompts()[0].token_ids, ElementsAre(14, 3, 12, 4, 13));
  EXPECT_EQ(source.prompts()[0].answer, "3");
}

TEST(PromptSource, GivesEveryRowOnceAnEpochInAnOrderOfTheSeed) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += R"({"prompt": [1, 2], "answer": ""})"
            "\n";
  const std::string data = folder.Write("data.jsonl", text);
  ASSERT_OK_AND_ASSIGN(PromptSource a, PromptSource::Load({data}, DataConfig(), nullptr, 7));
  ASSERT_OK_AND_ASSIGN(PromptSource b, PromptSource::Load({data}, DataConfig(), nullptr, 7));
  ASSERT_OK_AND_ASSIGN(PromptSource c, PromptSource::Load({data}, DataConfig(), nullptr, 8));

  const std::vector<int64_t> first = Rows(a.Next(20));
  const std::vector<int64_t> second = Rows(a.Next(20));

  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 20);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 20);
  EXPECT_NE(first, second);
  EXPECT_NE(first, Rows(c.Next(20)));
  std::vector<int64_t> pieces = Rows(b.Next(15));
  for (int64_t row : Rows(b.Next(5))) pieces.push_back(row);
  EXPECT_EQ(pieces, first);
}

TEST(PromptSource, GoesOnFromAPositionAsIfItHadGivenWhatWasBefore) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 6; ++i) text += "{\"prompt\": [1, 2]}\n";
  const std::string data = folder.Write("data.jsonl", text);
  for (const int64_t position : {0, 1, 5, 6, 7, 13}) {
    ASSERT_OK_AND_ASSIGN(PromptSource whole, PromptSource::Load({data}, DataConfig(), nullptr, 7));
    ASSERT_OK_AND_ASSIGN(PromptSource other, PromptSource::Load({data}, DataConfig(), nullptr, 7));
    whole.Next(position);

    other.Seek(position);

    EXPECT_EQ(Rows(other.Next(9)), Rows(whole.Next(9))) << position;
    EXPECT_EQ(other.position(), whole.position());
  }
}

TEST(PromptSource, RepeatsAndSharesTheRowsOfWeightedFiles) {
  const TempFolder folder;
  const std::string twice = folder.Write("a.jsonl", "{\"prompt\": [1]}\n");
  std::string text;
  for (int i = 0; i < 4; ++i) text += "{\"prompt\": [2]}\n";
  const std::string half = folder.Write("b.jsonl", text);

  ASSERT_OK_AND_ASSIGN(PromptSource source,
                       PromptSource::Load({twice, half}, DataConfig(), nullptr, 3, {}, {2, 0.5}));

  ASSERT_EQ(source.epoch_size(), 4);
  std::multiset<int64_t> rows;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::vector<int64_t> of_epoch = Rows(source.Next(4));
    EXPECT_EQ(std::count(of_epoch.begin(), of_epoch.end(), 0), 2);
    rows.insert(of_epoch.begin(), of_epoch.end());
  }
  // Two epochs take each half once.
  EXPECT_THAT(rows, ElementsAre(0, 0, 0, 0, 1, 2, 3, 4));
}

TEST(PromptSource, ReadsFoldersAndNamesTheFormOfEachFile) {
  const TempFolder folder;
  folder.Write("data/a.jsonl", "{\"prompt\": [1], \"answer\": \"2\"}\n");
  folder.Write("data/b.json", R"([{"prompt": [1], "reward_model": {"ground_truth": "2"}}])");

  ASSERT_OK_AND_ASSIGN(PromptSource source, PromptSource::Load({folder / "data"}, DataConfig(),
                                                               nullptr, 0, {.answer = true}));

  ASSERT_EQ(source.files().size(), 2u);
  EXPECT_EQ(source.files()[0].form, "prompt (token ids), answer");
  EXPECT_EQ(source.files()[1].form, "verl: prompt, reward_model.ground_truth");
  EXPECT_EQ(source.prompts().size(), 2u);
}

TEST(PromptSource, LeavesLongPromptsOutAndCountsThem) {
  const TempFolder folder;
  const std::string data = folder.Write("data.jsonl", R"({"prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9]})"
                                                      "\n"
                                                      R"({"prompt": [1]})"
                                                      "\n");

  ASSERT_OK_AND_ASSIGN(PromptSource source, PromptSource::Load({data}, DataConfig(), nullptr, 0));

  EXPECT_EQ(source.num_too_long(), 1);
  EXPECT_THAT(Rows(source.Next(2)), ElementsAre(1, 1));
}

TEST(PromptSource, NamesFileLineAndKeyOfABadRow) {
  const TempFolder folder;
  const std::string data = folder.Write("data.jsonl", R"({"prompt": [1]})"
                                                      "\n"
                                                      R"({"question": "x"})"
                                                      "\n");

  EXPECT_THAT(PromptSource::Load({data}, DataConfig(), nullptr, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::AllOf(HasSubstr(data + ":2"), HasSubstr("'prompt'"))));
}

TEST(PromptSource, NamesFileRowAndKeysWhereAnAnswerIsMissing) {
  const TempFolder folder;
  const std::string data = folder.Write("data.jsonl", R"({"prompt": [1], "answer": "3"})"
                                                      "\n"
                                                      R"({"prompt": [1], "anwser": "3"})"
                                                      "\n");

  EXPECT_THAT(
      PromptSource::Load({data}, DataConfig(), nullptr, 0, {.answer = true}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               ::testing::AllOf(HasSubstr(data + ":2: expected the key 'answer' (data.answer_key)"),
                                HasSubstr("found anwser, prompt"),
                                HasSubstr("did you mean 'anwser'?"))));
}

TEST(PromptSource, ReadsTheAnswerOfADottedKey) {
  const TempFolder folder;
  const std::string data = folder.Write(
      "data.jsonl", R"({"prompt": [1], "reward_model": {"ground_truth": "72", "style": "rule"}})");
  config::v1::DataConfig config = DataConfig();
  config.set_answer_key("reward_model.ground_truth");
  for (const config::v1::DataConfig& one : {config, DataConfig()}) {  // named, and recognised
    ASSERT_OK_AND_ASSIGN(PromptSource source,
                         PromptSource::Load({data}, one, nullptr, 0, {.answer = true}));
    EXPECT_EQ(source.prompts()[0].answer, "72");
  }
  config.set_answer_key("reward_model.truth");
  EXPECT_THAT(PromptSource::Load({data}, config, nullptr, 0, {.answer = true}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reward_model.ground_truth, reward_model.style")));
}

TEST(PromptSource, NeverLearnsAGroundTruthAsACompletion) {
  const TempFolder folder;
  const std::string data =
      folder.Write("data.jsonl", R"({"prompt": [1], "reward_model": {"ground_truth": "72"}})");

  EXPECT_THAT(PromptSource::Load({data}, DataConfig(), nullptr, 0,
                                 {.given = RowNeeds::Given::kCompletion, .end_ids = {0}})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("data.answer_key")));
}

TEST(PromptSource, RefusesTextWithoutATokenizer) {
  const TempFolder folder;
  const std::string data = folder.Write("data.jsonl", R"({"prompt": "1+2"})");

  EXPECT_THAT(PromptSource::Load({data}, DataConfig(), nullptr, 0).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer")));
}

}  // namespace
}  // namespace tandem::driver
