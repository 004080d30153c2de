// Against tokenizers and transformers: tests/parity/tokenizer_golden.py, tokenizer_models_golden.py
// and chat_golden.py wrote the expectations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/tokenizer/jinja/template.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

// The rows of a golden file, without the first, which says how it was made.
std::vector<Json> ReadGolden(const std::string& name) {
  const char* source = std::getenv("TANDEM_SOURCE");
  const std::string root = source != nullptr ? source : ".";
  std::ifstream in(root + "/tests/common/tokenizer/golden/" + name);
  std::vector<Json> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) rows.push_back(Json::parse(line));
  return rows;
}

std::string DecodedInSteps(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  IncrementalDecoder decoder(tokenizer, /*skip_special_tokens=*/false);
  std::string text;
  for (int32_t id : ids) text += decoder.Push(id).value();
  return text + decoder.Finish().value();
}

void ExpectGolden(const std::string& file) {
  const std::vector<Json> rows = ReadGolden(file);
  ASSERT_FALSE(rows.empty());
  for (const Json& row : rows) {
    SCOPED_TRACE(row["name"].get<std::string>());
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadJson(row["tokenizer"].dump()));
    EXPECT_EQ(tokenizer->vocab_size(), row["vocab_size"].get<size_t>());
    for (const Json& entry : row.value("encode", Json::array())) {
      const std::string text = entry["text"];
      SCOPED_TRACE(entry["text"].dump());
      const auto ids = entry["ids"].get<std::vector<int32_t>>();
      EXPECT_THAT(tokenizer->Encode(text, true), testing::IsOkAndHolds(ids));
      EXPECT_THAT(tokenizer->Encode(text, false),
                  testing::IsOkAndHolds(entry["plain"].get<std::vector<int32_t>>()));
      EXPECT_THAT(tokenizer->Decode(ids, false),
                  testing::IsOkAndHolds(entry["decoded"].get<std::string>()));
      EXPECT_EQ(DecodedInSteps(*tokenizer, ids), entry["decoded"].get<std::string>());
    }
    for (const Json& entry : row.value("decode", Json::array())) {
      SCOPED_TRACE(entry["ids"].dump());
      const auto ids = entry["ids"].get<std::vector<int32_t>>();
      EXPECT_THAT(tokenizer->Decode(ids, false),
                  testing::IsOkAndHolds(entry["text"].get<std::string>()));
      EXPECT_THAT(tokenizer->Decode(ids, true),
                  testing::IsOkAndHolds(entry["text_without_special"].get<std::string>()));
      EXPECT_EQ(DecodedInSteps(*tokenizer, ids), entry["text"].get<std::string>());
    }
  }
}

TEST(TokenizerGolden, EncodesAndDecodesAsTheReference) { ExpectGolden("tokenizers.jsonl"); }

TEST(TokenizerGolden, EncodesAndDecodesModelFamiliesAsTheReference) {
  ExpectGolden("models.jsonl");
}

TEST(TemplateGolden, RendersAndFailsAsTheReference) {
  const std::vector<Json> rows = ReadGolden("templates.jsonl");
  ASSERT_FALSE(rows.empty());
  const Json& context = rows[0]["context"];
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string source = rows[i]["template"];
    SCOPED_TRACE(source);
    const absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source);
    const absl::StatusOr<std::string> text =
        parsed.ok() ? parsed->Render(context) : parsed.status();
    if (rows[i].contains("rendered")) {
      EXPECT_THAT(text, testing::IsOkAndHolds(rows[i]["rendered"].get<std::string>()));
    } else {
      EXPECT_FALSE(text.ok()) << "the reference fails: " << rows[i]["error"];
    }
  }
}

TEST(ChatGolden, RendersConversationsAsTheReference) {
  const std::vector<Json> rows = ReadGolden("chats.jsonl");
  ASSERT_FALSE(rows.empty());
  const Json& contexts = rows[0]["contexts"];
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string source = rows[i]["template"];
    SCOPED_TRACE(source.substr(0, 200));
    ASSERT_OK_AND_ASSIGN(const jinja::Template parsed, jinja::Template::Parse(source));
    for (size_t c = 0; c < contexts.size(); ++c) {
      SCOPED_TRACE(contexts[c].dump());
      const Json& expected = rows[i]["rendered"][c];
      const absl::StatusOr<std::string> text = parsed.Render(contexts[c]);
      if (expected.is_string()) {
        EXPECT_THAT(text, testing::IsOkAndHolds(expected.get<std::string>()));
      } else {
        EXPECT_FALSE(text.ok());
      }
    }
  }
}

}  // namespace
}  // namespace tandem::tokenizer
