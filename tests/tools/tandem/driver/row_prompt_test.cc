// Prompts and sequences of rows in the forms that people have.
#include "tools/tandem/driver/row_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"
#include "tools/tandem/driver/prompt_source.h"
#include "tools/tandem/driver/reward_parts.h"

namespace tandem::driver {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::tandem::testing::WriteTinyModel;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Given = RowNeeds::Given;

// A user's turn is "U=", an assistant's "A<eos>,": the comma stands for the text that templates put
// between turns.
constexpr char kTemplate[] =
    "{{ sign | default('') }}{% if tools %}{{ tools | length }}+{% endif %}"
    "{% for m in messages %}{{ m.content }}"
    "{% if m.role == 'assistant' %}<eos>,{% else %}={% endif %}{% endfor %}";
// Like Qwen3's, it keeps the reasoning (here 9) of the last turn only.
constexpr char kForgetful[] =
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}{% if loop.last %}9{% endif %}{{ m.content }}<eos>"
    "{% else %}{{ m.content }}={% endif %}{% endfor %}";

class RowPromptTest : public ::testing::Test {
 protected:
  RowPromptTest() {
    config_.set_prompt_key("prompt");
    config_.set_answer_key("answer");
    config_.set_chosen_key("chosen");
    config_.set_rejected_key("rejected");
    config_.set_trained_turns(config::v1::TRAINED_TURNS_ASSISTANT);
    UseTemplate(kTemplate);
  }

  void UseTemplate(const std::string& text) {
    const std::string model = WriteTinyModel(folder_);
    folder_.Write("model/chat_template.jinja", text);
    auto tokenizer = LoadTokenizerIfAny(model);
    ASSERT_OK(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
  }

  absl::StatusOr<Prompt> Make(const std::string& row, Given given = Given::kNone,
                              bool answer = false) {
    const json fields = json::parse(row);
    const RowNeeds needs = {
        .answer = answer, .given = given, .generation = given == Given::kNone, .end_ids = {0}};
    return RowPrompts(config_, tokenizer_.get(), needs)
        .Make(io::JsonFields(fields, "data:1", row), dataset::RecogniseForm(fields, config_));
  }

  // The sequences as text, trained runs in brackets.
  std::vector<std::string> Shown(const Prompt& prompt) const {
    std::vector<std::string> out;
    for (const GivenSequence& sequence : prompt.given) {
      std::string& text = out.emplace_back();
      for (const TokenRun& run : sequence) {
        const std::vector<int32_t> ids(run.token_ids.begin(), run.token_ids.end());
        const auto decoded = tokenizer_->Decode(ids, /*skip_special_tokens=*/false);
        text += run.is_trained ? "[" + *decoded + "]" : *decoded;
      }
    }
    return out;
  }

  const TempFolder folder_;
  config::v1::DataConfig config_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(RowPromptTest, TrainsTextOnItsAnswerAndTheEndOfSequence) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt,
                       Make(R"({"prompt": "1+2=", "answer": "3"})", Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1+2=[3<eos>]"));
  ASSERT_OK_AND_ASSIGN(const Prompt empty,
                       Make(R"({"prompt": "1=", "answer": ""})", Given::kCompletion));
  EXPECT_THAT(Shown(empty), ElementsAre("1=[<eos>]"));
}

TEST_F(RowPromptTest, HasTheRewardCheckTheAnswer) {
  config::v1::RewardConfig reward;
  reward.set_name("gsm8k");
  const auto make = [&](const std::string& row) {
    const json fields = json::parse(row);
    const RowNeeds needs = {.answer = true, .check_answer = AnswerCheckOf(reward)};
    return RowPrompts(config_, tokenizer_.get(), needs)
        .Make(io::JsonFields(fields, "data:1", row), dataset::RecogniseForm(fields, config_))
        .status();
  };
  EXPECT_OK(make(R"({"prompt": "1=", "answer": "so #### 4"})"));
  EXPECT_THAT(make(R"({"prompt": "1=", "answer": "unknown"})"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("expected a number"), HasSubstr("found \"unknown\""),
                             HasSubstr("(reward.name gsm8k)"))));
  reward.clear_name();
  reward.add_rewards()->set_name("exact_match");
  auto* pattern = reward.add_rewards();
  pattern->set_name("regex");
  pattern->set_pattern("is (\\d+)");
  EXPECT_OK(make(R"({"prompt": "1=", "answer": 4})"));
  EXPECT_THAT(
      make(R"({"prompt": "1=", "answer": " "})"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("(reward.rewards[1].name regex)")));
}

TEST_F(RowPromptTest, RendersPromptAndCompletionOfMessages) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(R"({"prompt": [{"role": "user", "content": "1+2"}],
                                "completion": [{"role": "assistant", "content": "3"}]})",
                                                 Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1+2=[3<eos>]"));
}

constexpr char kTwoTurns[] = R"({"messages": [
    {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
    {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})";

TEST_F(RowPromptTest, TrainsOnEveryTurnOfTheAssistant) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(kTwoTurns, Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1=[2<eos>],3=[4<eos>]"));
}

TEST_F(RowPromptTest, TrainsOnTheLastTurnOnRequest) {
  config_.set_trained_turns(config::v1::TRAINED_TURNS_LAST_ASSISTANT);
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(kTwoTurns, Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1=2<eos>,3=[4<eos>]"));
}

TEST_F(RowPromptTest, LeavesOutTurnsOfWeightZero) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(R"({"messages": [{"role": "user", "content": "1"},
               {"role": "assistant", "content": "2", "weight": 0},
               {"role": "user", "content": "3"}, {"role": "assistant", "content": "4"}]})",
                                                 Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1=2<eos>,3=[4<eos>]"));
}

TEST_F(RowPromptTest, StartsASequenceAfterATurnThatTheTemplateRewrites) {
  UseTemplate(kForgetful);
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(kTwoTurns, Given::kCompletion));
  EXPECT_THAT(Shown(prompt), ElementsAre("1=[92<eos>]", "1=2<eos>3=[94<eos>]"));
}

TEST_F(RowPromptTest, SamplesFromAConversationBeforeItsLastTurn) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(kTwoTurns));
  EXPECT_EQ(prompt.text, "1=2<eos>,3=");
  EXPECT_EQ(prompt.answer, "4");
}

TEST_F(RowPromptTest, PassesToolsAndVariablesToTheTemplate) {
  config_.set_chat_template_kwargs(R"({"sign": "7"})");
  const std::string messages = R"("messages": [{"role": "user", "content": "1"}])";
  ASSERT_OK_AND_ASSIGN(const Prompt prompt,
                       Make("{" + messages + R"(, "tools": [{"type": "function"}]})"));
  EXPECT_EQ(prompt.text, "71+1=");
  ASSERT_OK_AND_ASSIGN(
      const Prompt own,
      Make("{" + messages + R"(, "tools": "[]", "chat_template_kwargs": {"sign": "8"}})"));
  EXPECT_EQ(own.text, "81=");
}

TEST_F(RowPromptTest, GivesPairsInEveryForm) {
  for (const char* row :
       {R"({"prompt": "1=", "chosen": "2", "rejected": "3"})",
        R"({"prompt": [{"role": "user", "content": "1"}],
            "chosen": [{"role": "assistant", "content": "2"}],
            "rejected": [{"role": "assistant", "content": "3"}]})",
        R"({"chosen": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}],
            "rejected": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "3"}]})",
        R"({"input": {"messages": [{"role": "user", "content": "1"}]},
            "preferred_output": [{"role": "assistant", "content": "2"}],
            "non_preferred_output": [{"role": "assistant", "content": "3"}]})"}) {
    SCOPED_TRACE(row);
    ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(row, Given::kPair));
    EXPECT_THAT(Shown(prompt), ElementsAre("1=[2<eos>]", "1=[3<eos>]"));
  }
}

TEST_F(RowPromptTest, ReadsTextPartsAndTheNullColumnsOfTables) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt, Make(R"({"prompt": [{"role": "user", "tool_calls": null,
                                "content": [{"type": "text", "text": "1"}]}]})"));
  EXPECT_EQ(prompt.text, "1=");
}

TEST_F(RowPromptTest, RefusesNullAndObjectsWhereTextIsNeeded) {
  const auto refuses = [this](const std::string& row, Given given, bool answer,
                              const std::string& problem) {
    EXPECT_THAT(Make(row, given, answer).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(problem)))
        << row;
  };
  refuses(R"({"prompt": null})", Given::kNone, false, "prompt: expected a string");
  refuses(R"({"prompt": "1", "answer": null})", Given::kCompletion, false,
          "answer: expected text, found null");
  refuses(R"({"prompt": "1", "answer": {"a": 1}})", Given::kNone, true,
          "answer: expected text, found an object");
  refuses(R"({"prompt": "1", "chosen": "2", "rejected": null})", Given::kPair, false,
          "rejected: expected text, found null");
  refuses(R"({"prompt": [{"role": "user", "content": null}]})", Given::kNone, false,
          "prompt[0].content: expected text, found null");
  refuses(R"({"prompt": [{"role": "user", "content": {"text": "1"}}]})", Given::kNone, false,
          "prompt[0].content: expected text, found an object");
  refuses(R"({"prompt": [{"content": "1"}]})", Given::kNone, false, "prompt[0].role");
}

TEST_F(RowPromptTest, TakesNumbersAsText) {
  ASSERT_OK_AND_ASSIGN(const Prompt prompt,
                       Make(R"({"prompt": "1", "answer": 3})", Given::kNone, true));
  EXPECT_EQ(prompt.answer, "3");
}

TEST_F(RowPromptTest, NamesWhatAPairLacks) {
  EXPECT_THAT(Make(R"({"prompt": "1", "chosen": "3"})", Given::kPair).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("'rejected' (data.rejected_key)"),
                             HasSubstr("found chosen, prompt"))));
}

}  // namespace
}  // namespace tandem::driver
