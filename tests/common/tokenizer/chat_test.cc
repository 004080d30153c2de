// Chat templates of model folders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/tokenizer/tokenizer.h"
#include "tests/common/tokenizer/tokenizer_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_data.h"

namespace tandem::tokenizer {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const Json kHello = Json::parse(R"([{"role": "user", "content": "Hello"}])");

absl::StatusOr<std::string> RenderWith(const std::string& config, const ChatOptions& options,
                                       const Json& messages = kHello) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", WordLevelJson("{}"));
  folder.Write("tokenizer_config.json", config);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Load(folder.path());
  if (!tokenizer.ok()) return tokenizer.status();
  return (*tokenizer)->RenderChat(messages, options);
}

TEST(Chat, GivesTheTemplateItsVariables) {
  ChatOptions options;
  options.add_generation_prompt = true;
  options.extra = {{"mood", "calm"}};
  EXPECT_THAT(RenderWith(R"({"bos_token": "<s>", "chat_template":
      "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}{{ add_generation_prompt }}{{ mood }}{{ tools is none }}"})",
                         options),
              testing::IsOkAndHolds("<s>HelloTruecalmTrue"));
}

TEST(Chat, ChoosesTheToolTemplateForTools) {
  const std::string config = R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "{{ tools | tojson }}"}]})";
  ChatOptions options;
  EXPECT_THAT(RenderWith(config, options), testing::IsOkAndHolds("plain"));
  options.tools = Json::parse(R"([{"z": 1, "a": "é"}])");
  EXPECT_THAT(RenderWith(config, options), testing::IsOkAndHolds(R"([{"z": 1, "a": "é"}])"));
}

TEST(Chat, PrefersTheTemplateFile) {
  const ModelFolder folder;
  folder.Write("tokenizer.json", WordLevelJson("{}"));
  folder.Write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.Write("chat_template.jinja", "new\n");
  ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Load(folder.path()));
  EXPECT_THAT(tokenizer->RenderChat(kHello, {}), testing::IsOkAndHolds("new"));
}

TEST(Chat, SaysWhatIsWrong) {
  EXPECT_THAT(RenderWith("{}", {}), testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                                      HasSubstr("no chat template")));
  EXPECT_THAT(RenderWith(R"({"chat_template": "\n{{ raise_exception('Only users!') }}"})", {}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("template line 2: Only users!")));
  EXPECT_THAT(
      RenderWith(R"({"chat_template": "{% if %}"})", {}),
      testing::StatusIs(absl::StatusCode::kInvalidArgument,
                        HasSubstr("tokenizer_config.json: chat_template: template line 1")));
  EXPECT_THAT(RenderWith(R"({"chat_template": "x"})", {}, Json("text")),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("messages")));
}

TEST(Chat, RefusesDeeplyNestedMessages) {
  std::string nested;
  for (int i = 0; i < 20000; ++i) nested += "[";
  for (int i = 0; i < 20000; ++i) nested += "]";
  EXPECT_THAT(RenderWith(R"({"chat_template": "x"})", {}, Json::parse(nested)),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nests deeper")));
}

// Conversations that transformers rendered and encoded.
TEST(Chat, RendersQwenAsTransformers) {
  SKIP_WITHOUT_DATA("chat/rendered_qwen.jsonl");
  const ModelFolder qwen25;
  std::filesystem::create_symlink(testing::TestData("tokenizers/qwen2.5/tokenizer.json"),
                                  qwen25.path() + "/tokenizer.json");
  std::filesystem::copy_file(testing::TestData("chat/qwen2.5.tokenizer_config.json"),
                             qwen25.path() + "/tokenizer_config.json");
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  ASSERT_OK_AND_ASSIGN(tokenizers["qwen2.5"],
                       Tokenizer::Load(std::filesystem::absolute(qwen25.path())));
  ASSERT_OK_AND_ASSIGN(tokenizers["qwen3"], Tokenizer::Load(testing::TestData("tokenizers/qwen3")));
  std::ifstream in(testing::TestData("chat/rendered_qwen.jsonl"));
  std::string line;
  int rows = 0;
  for (; std::getline(in, line); ++rows) {
    const Json row = Json::parse(line);
    ChatOptions options;
    options.extra = row["context"];
    options.add_generation_prompt = options.extra.value("add_generation_prompt", false);
    const Json messages = options.extra["messages"];
    const Tokenizer& tokenizer = *tokenizers.at(row["model"]);
    EXPECT_THAT(tokenizer.RenderChat(messages, options),
                testing::IsOkAndHolds(row["rendered"].get<std::string>()));
    EXPECT_THAT(tokenizer.EncodeChat(messages, options),
                testing::IsOkAndHolds(row["token_ids"].get<std::vector<int32_t>>()));
  }
  EXPECT_GT(rows, 20);
}

}  // namespace
}  // namespace tandem::tokenizer
