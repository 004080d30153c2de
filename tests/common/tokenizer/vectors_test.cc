// Published tokenizers and vectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::tokenizer {
namespace {

using IdVector = std::vector<int32_t>;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<nlohmann::json> ReadLines(const std::string& path) {
  std::ifstream in(path);
  std::vector<nlohmann::json> rows;
  std::string line;
  while (std::getline(in, line)) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

void ExpectRoundTrip(const Tokenizer& tokenizer, const std::string& text, const IdVector& ids) {
  EXPECT_THAT(tokenizer.Encode(text, false), testing::IsOkAndHolds(ids)) << text;
  EXPECT_THAT(tokenizer.Decode(ids, false), testing::IsOkAndHolds(text));
}

// llama.cpp's vectors: texts with separators, and a line of ids for each.
void ExpectLlamaCppVectors(const std::string& model, const std::string& vectors) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(testing::TestData("tokenizers/" + model)));
  const std::string base = testing::TestData("tokenizers/vectors/ggml-vocab-" + vectors + ".gguf");
  const std::string texts_file = ReadAll(base + ".inp");
  const std::string ids_file = ReadAll(base + ".out");
  const std::vector<std::string> texts = absl::StrSplit(texts_file, "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = absl::StrSplit(ids_file, '\n');
  ASSERT_GT(texts.size(), 40u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    IdVector ids;
    std::istringstream line(lines[i]);
    for (int32_t id; line >> id;) ids.push_back(id);
    EXPECT_THAT(tokenizer->Encode(texts[i], false), testing::IsOkAndHolds(ids)) << texts[i];
  }
}

void ExpectGsm8kIds(const std::string& model) {
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(testing::TestData("tokenizers/" + model)));
  const auto questions = ReadLines(testing::TestData("gsm8k/test.jsonl"));
  const auto rows =
      ReadLines(testing::TestData("tokenizers/vectors/gsm8k_test_400." + model + ".jsonl"));
  ASSERT_FALSE(rows.empty());
  for (const nlohmann::json& row : rows) {
    const nlohmann::json& item = questions.at(row["i"].get<size_t>());
    ExpectRoundTrip(*tokenizer, item["question"], row["q"].get<IdVector>());
    ExpectRoundTrip(*tokenizer, item["answer"], row["a"].get<IdVector>());
  }
}

TEST(TokenizerVectors, Gpt2GivesLlamaCppsIds) {
  SKIP_WITHOUT_DATA("tokenizers/vectors");
  ExpectLlamaCppVectors("gpt2", "gpt-2");
}

TEST(TokenizerVectors, Qwen2GivesLlamaCppsIds) {
  SKIP_WITHOUT_DATA("tokenizers/vectors");
  ExpectLlamaCppVectors("qwen2.5", "qwen2");
}

TEST(TokenizerVectors, Gpt2GivesTheReferencesIdsOfGsm8k) {
  SKIP_WITHOUT_DATA("tokenizers/vectors");
  ExpectGsm8kIds("gpt2");
}

TEST(TokenizerVectors, QwenGivesTheReferencesIdsOfGsm8k) {
  SKIP_WITHOUT_DATA("tokenizers/vectors");
  ExpectGsm8kIds("qwen2.5");
}

TEST(TokenizerVectors, TinyStoriesGivesThePromptsIds) {
  SKIP_WITHOUT_DATA("models/tinystories-656k");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                       Tokenizer::Load(testing::TestData("models/tinystories-656k")));
  for (const auto& row : ReadLines(testing::TestData("models/tinystories-656k/greedy_3.jsonl"))) {
    EXPECT_THAT(tokenizer->Encode(row["prompt"].get<std::string>(), true),
                testing::IsOkAndHolds(row["prompt_ids"].get<IdVector>()));
  }
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
}

}  // namespace
}  // namespace tandem::tokenizer
