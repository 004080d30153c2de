// Observations in real chat templates, compared with what the template writes of the whole
// conversation.
#include "common/tokenizer/observation_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "common/tokenizer/tokenizer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/tiny_model.h"

namespace tandem::tokenizer {
namespace {

using nlohmann::ordered_json;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

ordered_json Message(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

std::unique_ptr<Tokenizer> LoadReal(const std::string& name) {
  auto tokenizer = Tokenizer::Load(testing::TestData("tokenizers/" + name));
  EXPECT_OK(tokenizer.status());
  return *std::move(tokenizer);
}

// The tiny tokenizer with a template.
std::unique_ptr<Tokenizer> LoadTiny(const TempFolder& folder, const std::string& text) {
  const std::string model = testing::WriteTinyModel(folder);
  folder.Write("model/chat_template.jinja", text);
  auto tokenizer = Tokenizer::Load(model);
  EXPECT_OK(tokenizer.status());
  return *std::move(tokenizer);
}

TEST(ObservationText, IsWhatQwensTemplateAddsAfterTheEndOfTurn) {
  SKIP_WITHOUT_DATA("tokenizers/qwen2.5");
  const auto tokenizer = LoadReal("qwen2.5");
  ordered_json conversation = ordered_json::array({Message("user", "How much is 48/2?")});
  const ordered_json observation = ordered_json::array({Message("tool", "24")});
  ASSERT_OK_AND_ASSIGN(const std::string prompt,
                       tokenizer->RenderChat(conversation, {.add_generation_prompt = true}));
  const std::string turn = "<tool_call>\n{\"name\": \"calculator\"}\n</tool_call>";
  conversation.push_back(Message("assistant", turn));

  ASSERT_OK_AND_ASSIGN(
      const ObservationText found,
      RenderObservation(conversation, observation, prompt, "<|im_end|>", {}, *tokenizer));

  EXPECT_FALSE(found.mismatch.has_value());
  EXPECT_EQ(found.text,
            "\n<|im_start|>user\n<tool_response>\n24\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n");
  // Prompt, turn and observation are what the template writes of the whole.
  EXPECT_EQ(prompt + turn + "<|im_end|>" + found.text, found.with_all);
}

// The id and the arguments of a call are the template's to write.
ordered_json CallMessage(const std::string& content) {
  return {{"role", "assistant"},
          {"content", content},
          {"tool_calls",
           {{{"id", "call00001"},
             {"type", "function"},
             {"function", {{"name", "calculator"}, {"arguments", {{"expression", "48/2"}}}}}}}}};
}

TEST(ObservationText, ACallThatTheTemplateRendersIsNotRepeated) {
  SKIP_WITHOUT_DATA("tokenizers/qwen2.5");
  const auto tokenizer = LoadReal("qwen2.5");
  for (const char* content : {"", "Let me see."}) {
    ordered_json conversation = ordered_json::array({Message("user", "How much is 48/2?")});
    ASSERT_OK_AND_ASSIGN(const std::string prompt,
                         tokenizer->RenderChat(conversation, {.add_generation_prompt = true}));
    conversation.push_back(CallMessage(content));
    ASSERT_OK_AND_ASSIGN(
        const ObservationText found,
        RenderObservation(conversation, ordered_json::array({Message("tool", "24")}), prompt,
                          "<|im_end|>", {}, *tokenizer));
    EXPECT_FALSE(found.mismatch.has_value()) << *found.mismatch;
    EXPECT_EQ(found.text,
              "\n<|im_start|>user\n<tool_response>\n24\n</tool_response><|im_end|>\n"
              "<|im_start|>assistant\n");
  }
}

TEST(ObservationText, ATurnWithCallsMayHaveAnEndOfItsOwn) {
  const TempFolder folder;
  const auto tokenizer =
      LoadTiny(folder,
               "{% for m in messages %}{% if m.role == 'assistant' %}={% endif %}"
               "{{ m.content }}{% if m.tool_calls %}7<unk>*{% else %}<eos>,{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}={% endif %}");
  const ordered_json conversation = ordered_json::array({Message("user", "1"), CallMessage("2")});
  ASSERT_OK_AND_ASSIGN(const ObservationText found,
                       RenderObservation(conversation, ordered_json::array({Message("tool", "3")}),
                                         "1<eos>,=", "<unk>", {}, *tokenizer));
  EXPECT_FALSE(found.mismatch.has_value()) << *found.mismatch;
  EXPECT_EQ(found.text, "*3<eos>,=");
}

TEST(ObservationText, EndsATurnThatAStopStringEnded) {
  SKIP_WITHOUT_DATA("tokenizers/qwen2.5");
  const auto tokenizer = LoadReal("qwen2.5");
  ordered_json conversation = ordered_json::array({Message("user", "1+1?")});
  ASSERT_OK_AND_ASSIGN(const std::string prompt,
                       tokenizer->RenderChat(conversation, {.add_generation_prompt = true}));
  conversation.push_back(Message("assistant", "two"));
  ASSERT_OK_AND_ASSIGN(
      const ObservationText found,
      RenderObservation(conversation, ordered_json::array({Message("user", "Sure?")}), prompt, "",
                        {}, *tokenizer));
  EXPECT_EQ(found.text, "<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n");
}

TEST(ObservationText, NamesTheTextThatATemplateRewrites) {
  SKIP_WITHOUT_DATA("tokenizers/qwen3");
  // Qwen3 removes the reasoning of earlier turns when a user speaks.
  const auto tokenizer = LoadReal("qwen3");
  ordered_json conversation = ordered_json::array({Message("user", "1+1?")});
  ASSERT_OK_AND_ASSIGN(const std::string prompt,
                       tokenizer->RenderChat(conversation, {.add_generation_prompt = true}));
  conversation.push_back(Message("assistant", "<think>\nEasy.\n</think>\n\n2"));

  ASSERT_OK_AND_ASSIGN(
      const ObservationText after_user,
      RenderObservation(conversation, ordered_json::array({Message("user", "Sure?")}), prompt,
                        "<|im_end|>", {}, *tokenizer));
  ASSERT_OK_AND_ASSIGN(const ObservationText after_tool,
                       RenderObservation(conversation, ordered_json::array({Message("tool", "2")}),
                                         prompt, "<|im_end|>", {}, *tokenizer));

  ASSERT_TRUE(after_user.mismatch.has_value());
  EXPECT_THAT(*after_user.mismatch,
              AllOf(HasSubstr("rewrites the past when it adds the observation"),
                    HasSubstr("expected \"im_start|>assistant\\n<think>\\nEasy."),
                    HasSubstr("found \"im_start|>assistant\\n2<|im_end|>")));
  EXPECT_FALSE(after_tool.mismatch.has_value());  // it keeps those of the turns since the user's
  EXPECT_THAT(after_tool.text, HasSubstr("<tool_response>\n2\n</tool_response>"));
}

TEST(ObservationText, FindsATemplateThatWritesATurnAfterAnotherText) {
  const TempFolder folder;
  // The header of a new turn is "9", but a finished turn has none.
  const auto tokenizer = LoadTiny(folder,
                                  "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"
                                  "{% if add_generation_prompt %}9{% endif %}");
  ASSERT_OK_AND_ASSIGN(
      const ObservationText found,
      RenderObservation(ordered_json::array({Message("user", "1"), Message("assistant", "2")}),
                        ordered_json::array({Message("tool", "3")}), "1<eos>9", "<eos>", {},
                        *tokenizer));
  ASSERT_TRUE(found.mismatch.has_value());
  EXPECT_THAT(*found.mismatch,
              AllOf(HasSubstr("when it adds the policy's turn: at byte 6"),
                    HasSubstr("expected \"1<eos>9\""), HasSubstr("found \"1<eos>2<eos>\"")));
}

TEST(ObservationText, KeepsATemplateThatTrimsItsMessages) {
  const TempFolder folder;
  const auto tokenizer =
      LoadTiny(folder,
               "{% for m in messages %}{% if m.role == 'assistant' %}={% endif %}"
               "{{ m.content | trim }}<eos>,{% endfor %}"
               "{% if add_generation_prompt %}={% endif %}");
  ASSERT_OK_AND_ASSIGN(
      const ObservationText found,
      RenderObservation(ordered_json::array({Message("user", "1"), Message("assistant", " 2 ")}),
                        ordered_json::array({Message("tool", "3")}), "1<eos>,=", "<eos>", {},
                        *tokenizer));
  EXPECT_FALSE(found.mismatch.has_value());
  EXPECT_EQ(found.text, ",3<eos>,=");
}

}  // namespace
}  // namespace tandem::tokenizer
