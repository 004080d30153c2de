#include "tools/tandem/commands/prompt_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tandem/config/v1/run_config.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/row_prompt.h"

namespace tandem::commands {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Writes a variable and what it is told of tools: their number, and the type of the first.
constexpr char kTemplate[] =
    "{{ sign | default('') }}{% if tools %}{{ tools | length }}+{{ tools[0].type }}{% endif %}"
    "{% for m in messages %}{{ m.content }}="
    "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments.a }}{% endif %}{% endfor %}";

class PromptRowTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model = testing::WriteTinyModel(folder_);
    folder_.Write("model/chat_template.jinja", kTemplate);
    ASSERT_OK_AND_ASSIGN(tokenizer_, driver::LoadTokenizerIfAny(model));
  }

  absl::StatusOr<driver::Prompt> Read(const std::string& row, const std::string& variables = "") {
    const json fields = json::parse(row);
    const RowImages images(folder_ / "in.jsonl");
    return ReadPromptRow(io::JsonFields(fields, "in.jsonl:1", row),
                         {.tokenizer = tokenizer_.get(), .images = images, .variables = variables});
  }

  // The prompt that `tandem train` makes of the row.
  absl::StatusOr<driver::Prompt> Trained(const std::string& row, const std::string& variables) {
    const json fields = json::parse(row);
    config::v1::DataConfig config;
    config.set_prompt_key("prompt");
    config.set_answer_key("answer");
    config.set_chat_template_kwargs(variables);
    const driver::RowNeeds needs;
    return driver::RowPrompts(config, tokenizer_.get(), needs)
        .Make(io::JsonFields(fields, "in.jsonl:1", row), dataset::RecogniseForm(fields, config));
  }

  const TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(PromptRowTest, RendersWhatTrainRenders) {
  const std::string variables = R"({"sign": "7"})";
  const std::string tools = R"("tools": [{"type": "8", "function": null}])";
  for (const std::string& rest :
       {tools, std::string(R"("tools": "[{\"type\": \"8\"}]")"), std::string(R"("tools": null)"),
        tools + R"(, "chat_template_kwargs": {"sign": "9"})",
        tools + R"(, "chat_template_kwargs": "{\"sign\": \"9\"}")"}) {
    const std::string row =
        R"({"prompt": [{"role": "user", "content": [{"type": "text", "text": "1"}]}, )"
        R"({"role": "assistant", "content": null, "tool_calls": [{"type": "function", )"
        R"("function": {"name": "f", "arguments": "{\"a\": 5}"}}]}, )"
        R"({"role": "tool", "content": "2"}], )" +
        rest + "}";
    ASSERT_OK_AND_ASSIGN(const driver::Prompt trained, Trained(row, variables));

    ASSERT_OK_AND_ASSIGN(const driver::Prompt read, Read(row, variables));

    EXPECT_EQ(read.text, trained.text) << rest;
    EXPECT_EQ(read.token_ids, trained.token_ids) << rest;
  }
}

TEST_F(PromptRowTest, PassesToolsAndVariablesToTheTemplate) {
  const std::string messages = R"("messages": [{"role": "user", "content": "1"}])";

  ASSERT_OK_AND_ASSIGN(const driver::Prompt plain, Read("{" + messages + "}"));
  ASSERT_OK_AND_ASSIGN(
      const driver::Prompt full,
      Read("{" + messages +
           R"(, "tools": [{"type": "8"}], "chat_template_kwargs": {"sign": "9"}})"));

  EXPECT_EQ(plain.text, "1=");
  EXPECT_EQ(full.text, "91+81=");
}

TEST_F(PromptRowTest, TakesTextAndIdsAsTheyAre) {
  ASSERT_OK_AND_ASSIGN(const driver::Prompt text, Read(R"({"prompt": "1+2="})"));
  ASSERT_OK_AND_ASSIGN(const driver::Prompt ids, Read(R"({"ids": [3, 12]})"));

  EXPECT_EQ(text.text, "1+2=");
  EXPECT_TRUE(text.token_ids.empty());
  EXPECT_EQ(ids.token_ids, (std::vector<uint32_t>{3, 12}));
}

TEST_F(PromptRowTest, ReadsTheFilesOfARowsImages) {
  folder_.Write("in.jsonl", "");
  folder_.Write("pictures/a.png", "first");

  ASSERT_OK_AND_ASSIGN(
      const driver::Prompt prompt,
      Read(R"({"ids": [3, 12], "images": ["pictures/a.png", "data:image/png,second"]})"));

  ASSERT_EQ(prompt.images.size(), 2U);
  EXPECT_EQ(*prompt.images[0].file, "first");
  EXPECT_EQ(*prompt.images[1].file, "second");
  EXPECT_THAT(Read(R"({"ids": [3], "images": ["pictures/b.png"]})"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("in.jsonl:1: images[0]"), HasSubstr("b.png"))));
  EXPECT_THAT(
      Read(R"({"ids": [3], "images": ["https://a/b.png"]})"),
      StatusIs(absl::StatusCode::kPermissionDenied,
               AllOf(HasSubstr("images[0]: https://a/b.png"), HasSubstr("--allow-image-urls"))));
  EXPECT_THAT(Read(R"({"prompt": "1", "images": ["pictures/a.png"]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("images: a prompt of text")));
}

TEST_F(PromptRowTest, NamesWhatItCannotRead) {
  EXPECT_THAT(Read(R"({"text": "1"})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prompt, ids or messages")));
  EXPECT_THAT(Read(R"({"messages": [{"role": "user", "content": "1"}], "tools": 5})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tools"), HasSubstr("expected a list of tools"))));
  tokenizer_ = nullptr;
  EXPECT_THAT(Read(R"({"messages": [{"role": "user", "content": "1"}]})"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--model DIR")));
}

}  // namespace
}  // namespace tandem::commands
