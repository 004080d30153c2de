#include "tools/tandem/dataset/row_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::dataset {
namespace {

using ::testing::HasSubstr;

config::v1::DataConfig DefaultKeys() {
  config::v1::DataConfig config;
  config.set_prompt_key("prompt");
  config.set_answer_key("answer");
  config.set_chosen_key("chosen");
  config.set_rejected_key("rejected");
  return config;
}

RowForm Form(const char* row, const config::v1::DataConfig& config = DefaultKeys()) {
  return RecogniseForm(nlohmann::json::parse(row), config);
}

TEST(RowForm, RecognisesTheFormsOfVerlTrlAndOpenAi) {
  const RowForm verl =
      Form(R"({"data_source": "gsm8k", "prompt": [{"role": "user", "content": "1"}],
      "reward_model": {"style": "rule", "ground_truth": "2"}})");
  EXPECT_THAT(verl.name, HasSubstr("verl"));
  EXPECT_EQ(verl.answer_key, "reward_model.ground_truth");
  EXPECT_EQ(verl.completion_key, "");

  const RowForm trl = Form(R"({"prompt": [{"role": "user", "content": "1"}],
      "completion": [{"role": "assistant", "content": "2"}]})");
  EXPECT_EQ(trl.name, "TRL conversational prompt and completion");
  EXPECT_EQ(trl.completion_key, "completion");

  const RowForm chat = Form(R"({"messages": [{"role": "user", "content": "1"},
      {"role": "assistant", "content": "2"}], "tools": []})");
  EXPECT_THAT(chat.name, HasSubstr("conversations (TRL, OpenAI): messages"));
  EXPECT_TRUE(chat.is_conversation);
  EXPECT_EQ(chat.tools_key, "tools");

  const RowForm pairs = Form(R"({"input": {"messages": [{"role": "user", "content": "1"}]},
      "preferred_output": [{"role": "assistant", "content": "2"}],
      "non_preferred_output": [{"role": "assistant", "content": "3"}]})");
  EXPECT_THAT(pairs.name, HasSubstr("OpenAI preferences"));
  EXPECT_EQ(pairs.prompt_key, "input.messages");
}

TEST(RowForm, PutsConfiguredKeysFirst) {
  config::v1::DataConfig config = DefaultKeys();
  config.set_prompt_key("question");
  config.set_answer_key("extra_info.answer");
  const RowForm form = Form(
      R"({"question": "1", "messages": [], "prompt": "2", "extra_info": {"answer": "3"},
          "completion": "4"})",
      config);
  EXPECT_EQ(form.prompt_key, "question");
  EXPECT_EQ(form.answer_key, "extra_info.answer");
  EXPECT_EQ(form.completion_key, "extra_info.answer");
}

TEST(RowForm, TriesNoOtherKeyForAKeyThatIsConfigured) {
  config::v1::DataConfig config = DefaultKeys();
  config.set_prompt_key("question");
  config.set_answer_key("anwser");
  const RowForm form = Form(R"({"messages": [], "completion": "4"})", config);
  EXPECT_EQ(form.prompt_key, "");
  EXPECT_EQ(form.answer_key, "");
}

}  // namespace
}  // namespace tandem::dataset
