#include "services/rollout/openai/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status_conversion.h"
#include "services/rollout/openai/api_error.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_model.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CompletionRequestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto tokenizer = tokenizer::Tokenizer::Load(testing::WriteTinyModel(folder_));
    ASSERT_OK(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
  }

  absl::StatusOr<CompletionRequest> Parse(const char* body, bool chat = false) {
    return ParseCompletionRequest(ordered_json::parse(body), chat, tokenizer_.get());
  }

  void WriteTemplate(const std::string& text) {
    folder_.Write("model/chat_template.jinja", text);
    auto tokenizer = tokenizer::Tokenizer::Load(folder_ / "model");
    ASSERT_OK(tokenizer.status());
    tokenizer_ = *std::move(tokenizer);
  }

  // The field that the error names, as clients see it.
  std::string ParamOf(const char* body, bool chat = false) {
    const auto request = Parse(body, chat);
    if (request.ok()) return "none";
    return ErrorBody(request.status())["error"]["param"].dump();
  }

  const testing::TempFolder folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
};

TEST_F(CompletionRequestTest, PromptsComeInFourForms) {
  const char* const kBodies[] = {R"({"prompt": "1+2="})", R"({"prompt": ["1+2="]})",
                                 R"({"prompt": [3, 12, 4, 13]})",
                                 R"({"prompt": [[3, 12, 4, 13]]})"};
  for (const char* body : kBodies) {
    ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(body));
    ASSERT_EQ(request.prompts.size(), 1) << body;
    EXPECT_THAT(request.prompts[0].ids, ElementsAre(3, 12, 4, 13)) << body;
    EXPECT_EQ(request.prompts[0].text, "1+2=") << body;
  }
  ASSERT_OK_AND_ASSIGN(const CompletionRequest mixed, Parse(R"({"prompt": ["1+", [4, 13]]})"));
  EXPECT_EQ(mixed.prompts.size(), 2);
}

TEST_F(CompletionRequestTest, FieldsMeanWhatTheEngineCallsThem) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(R"({
    "prompt": "1", "temperature": 0.5, "top_p": 0.25, "top_k": -1, "min_p": 0.125, "seed": -1,
    "n": 3, "stop": "=", "stop_token_ids": [4], "min_tokens": 2, "max_tokens": 5,
    "ignore_eos": true, "user": "me", "priority": 2, "logprobs": 4, "echo": true,
    "stream": true, "stream_options": {"include_usage": true}})"));

  EXPECT_EQ(request.generation.filter.temperature, 0.5);
  EXPECT_EQ(request.generation.filter.top_p, 0.25);
  EXPECT_EQ(request.generation.filter.top_k, 0);
  EXPECT_EQ(request.generation.filter.min_p, 0.125);
  EXPECT_EQ(request.generation.seed, UINT64_MAX);
  EXPECT_EQ(request.generation.n, 3);
  EXPECT_THAT(request.generation.stop, ElementsAre("="));
  EXPECT_THAT(request.generation.stop_token_ids, ElementsAre(4));
  EXPECT_EQ(request.generation.max_tokens, 5);
  EXPECT_TRUE(request.generation.ignore_eos);
  EXPECT_EQ(request.generation.client_id, "me");
  EXPECT_EQ(request.generation.priority, 2);
  EXPECT_EQ(request.generation.num_top_logprobs, 4);
  EXPECT_TRUE(request.generation.stream && request.include_usage && request.echo);
}

TEST_F(CompletionRequestTest, PenaltiesAndBiasesAreThoseOfTheEngine) {
  for (const bool chat : {false, true}) {
    std::string body =
        R"("presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.25,
        "logit_bias": {"5": -100, "3": 0.5, "4": 0}})";
    body = (chat ? R"({"messages": [{"role": "user", "content": "1"}], )" : R"({"prompt": "1", )") +
           body;
    if (chat) WriteTemplate("{{ messages[0].content }}");
    ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(body.c_str(), chat));
    EXPECT_EQ(request.generation.penalties.presence, 0.5);
    EXPECT_EQ(request.generation.penalties.frequency, -1.0);
    EXPECT_EQ(request.generation.penalties.repetition, 1.25);
    EXPECT_THAT(request.generation.penalties.logit_bias,
                ElementsAre(std::pair(5, -100.0f), std::pair(3, 0.5f)));
  }
}

TEST_F(CompletionRequestTest, NullAndAbsentAreTheDefaults) {
  ASSERT_OK_AND_ASSIGN(
      const CompletionRequest request,
      Parse(R"({"prompt": "1", "stop": null, "logprobs": null, "logit_bias": {}, "best_of": 1,
                "presence_penalty": 0.0, "frequency_penalty": 0, "suffix": null})"));

  EXPECT_EQ(request.generation.max_tokens, 16);
  EXPECT_EQ(request.generation.filter.temperature, 1.0);
  EXPECT_FALSE(request.num_logprobs.has_value());
  EXPECT_FALSE(request.generation.seed.has_value());
}

TEST_F(CompletionRequestTest, ErrorsNameTheField) {
  EXPECT_EQ(ParamOf(R"({})"), R"("prompt")");
  EXPECT_EQ(ParamOf(R"({"prompt": []})"), R"("prompt")");
  EXPECT_EQ(ParamOf(R"({"prompt": ["1", 5]})"), R"("prompt[1]")");
  EXPECT_EQ(ParamOf(R"({"prompt": [1, "5"]})"), R"("prompt")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "temperature": "hot"})"), R"("temperature")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "n": 1.5})"), R"("n")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "stop": [1]})"), R"("stop")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "max_tokens": 99999999999999999999})"), R"("max_tokens")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "logit_bias": {"a": 1}})"), R"("logit_bias")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "logit_bias": {"5": "1"}})"), R"("logit_bias")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "logit_bias": {"5": 1, "05": 1}})"), R"("logit_bias")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "presence_penalty": "1"})"), R"("presence_penalty")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "best_of": 4})"), R"("best_of")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "temprature": 1})"), R"("temprature")");
  EXPECT_EQ(ParamOf(R"({"prompt": "1", "stream_options": {"x": 1}})"), R"("stream_options.x")");
  EXPECT_EQ(ParamOf(R"({"messages": "hi"})", true), R"("messages")");
  EXPECT_EQ(ParamOf(R"({"messages": [{"content": "hi"}]})", true), R"("messages[0]")");
  EXPECT_EQ(
      ParamOf(R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", true),
      R"("messages[0].content")");
  // The model has no chat template.
  EXPECT_EQ(ParamOf(R"({"messages": [{"role": "user", "content": "1"}]})", true), R"("messages")");
}

TEST_F(CompletionRequestTest, APromptThatIsOnlyEchoedFitsTheContextToo) {
  const ParseOptions limits{.text = {.max_model_len = 4, .max_text_bytes = 100}};
  const auto parse = [&](const ordered_json& body) {
    return ParseCompletionRequest(body, /*chat=*/false, tokenizer_.get(), limits);
  };
  const ordered_json fits = {{"prompt", "1+2="}, {"max_tokens", 0}, {"echo", true}};
  EXPECT_OK(parse(fits));
  ordered_json body = fits;
  for (const ordered_json& prompt :
       {ordered_json("1+2=3"), ordered_json({3, 12, 4, 13, 5}), ordered_json({"1", "1+2=3"})}) {
    body["prompt"] = prompt;
    EXPECT_EQ(ErrorBody(parse(body).status())["error"]["code"], "context_length_exceeded")
        << prompt;
  }
  // A completion needs room.
  EXPECT_EQ(ErrorBody(parse({{"prompt", "1+2="}}).status())["error"]["code"],
            "context_length_exceeded");
}

TEST_F(CompletionRequestTest, ATextThatCannotFitIsRefusedBeforeItIsTokenized) {
  const ParseOptions limits{.text = {.max_model_len = 1000, .max_text_bytes = 100}};
  // Tokenized, it would be refused as no UTF-8.
  const auto request = ParseCompletionRequest({{"prompt", std::string(101, '\xff')}},
                                              /*chat=*/false, tokenizer_.get(), limits);
  EXPECT_THAT(std::string(request.status().message()), HasSubstr("at most 100 bytes"));
  EXPECT_EQ(ErrorBody(request.status())["error"]["code"], "context_length_exceeded");
}

TEST_F(CompletionRequestTest, ChoicesAreCountedBeforeAPromptIsTokenized) {
  ordered_json prompts = ordered_json::array();
  for (int i = 0; i < 20000; ++i) prompts.push_back("\xff");
  const auto request =
      ParseCompletionRequest({{"prompt", prompts}}, /*chat=*/false, tokenizer_.get());
  EXPECT_THAT(std::string(request.status().message()), HasSubstr("choices"));
}

TEST_F(CompletionRequestTest, TokenizingEndsWithItsClient) {
  ParseOptions limits;
  int num_looks = 0;
  limits.check = [&] { return ++num_looks < 2 ? absl::OkStatus() : absl::CancelledError("gone"); };
  ordered_json prompts = ordered_json::array();
  for (int i = 0; i < 100; ++i) prompts.push_back(std::string(100000, '1'));
  const auto request =
      ParseCompletionRequest({{"prompt", prompts}}, /*chat=*/false, tokenizer_.get(), limits);
  EXPECT_EQ(request.status().code(), absl::StatusCode::kCancelled);
}

TEST_F(CompletionRequestTest, WithoutATokenizerPromptsAreIds) {
  const auto text =
      ParseCompletionRequest({{"prompt", "1"}}, /*chat=*/false, /*tokenizer=*/nullptr);
  EXPECT_EQ(HttpCode(text.status()), 400);
  ASSERT_OK_AND_ASSIGN(const CompletionRequest ids,
                       ParseCompletionRequest({{"prompt", {3, 4}}}, false, nullptr));
  EXPECT_THAT(ids.prompts[0].ids, ElementsAre(3, 4));
  EXPECT_FALSE(ids.generation.return_text);
}

}  // namespace
}  // namespace tandem::rollout::openai
