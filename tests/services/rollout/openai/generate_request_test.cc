#include "services/rollout/openai/generate_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/rollout/openai/api_error.h"
#include "services/rollout/openai/generate_format.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;

absl::StatusOr<CompletionRequest> Parse(const char* body) {
  return ParseGenerateRequest(ordered_json::parse(body));
}

std::string ParamOf(const char* body) {
  const auto request = Parse(body);
  if (request.ok()) return "none";
  EXPECT_EQ(HttpCode(request.status()), 400);
  return ErrorBody(request.status(), FieldNames::kGenerate)["error"]["param"].get<std::string>();
}

TEST(GenerateRequest, ReadsTheFieldsThatVerifiersSends) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(R"({
    "model": "m", "token_ids": [3, 1, 2], "cache_salt": "7", "priority": 2, "request_id": "r1",
    "sampling_params": {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop_token_ids": [4],
      "logprobs": 1, "skip_special_tokens": false, "detokenize": false, "flat_logprobs": true,
      "extra_args": {"prl_compact_logprobs": true}, "presence_penalty": 0.5}})"));
  EXPECT_EQ(request.route, Route::kGenerate);
  EXPECT_THAT(request.prompts[0].ids, ElementsAre(3, 1, 2));
  EXPECT_EQ(request.generation.id, "r1");
  EXPECT_EQ(request.generation.priority, 2);
  EXPECT_EQ(request.generation.max_tokens, 9);
  EXPECT_EQ(request.generation.filter.temperature, 0.5);
  EXPECT_THAT(request.generation.stop_token_ids, ElementsAre(4));
  EXPECT_EQ(request.generation.num_top_logprobs, 1);
  EXPECT_TRUE(request.generation.return_ranks);
  EXPECT_EQ(request.generation.penalties.presence, 0.5);
  EXPECT_FALSE(request.generation.return_text);
}

TEST(GenerateRequest, ErrorsNameTheField) {
  EXPECT_EQ(ParamOf("{}"), "token_ids");
  EXPECT_EQ(ParamOf(R"({"token_ids": "1"})"), "token_ids");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1.5]})"), "token_ids");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": 3})"), "sampling_params");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": {"temperature": "x"}})"),
            "sampling_params.temperature");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": {"temprature": 1}})"),
            "sampling_params.temprature");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": {"bad_words": ["a"]}})"),
            "sampling_params.bad_words");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": {"extra_args": {"x": 1}}})"),
            "sampling_params.extra_args.x");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "features": {"a": 1}})"), "features");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "prompt": "a"})"), "prompt");
  EXPECT_EQ(ParamOf(R"({"token_ids": [1], "sampling_params": {"n": 0}})"), "sampling_params.n");
}

TEST(GenerateFormat, AnswersWithTokensVersionsAndWhatStopped) {
  ASSERT_OK_AND_ASSIGN(CompletionRequest request,
                       Parse(R"({"token_ids": [3], "return_token_ids": true,
                           "sampling_params": {"logprobs": 1, "stop_token_ids": [8]}})"));
  request.generation.id = "r1";
  SampleChunk chunk;
  chunk.token_ids = {5, 8};
  chunk.logprobs = {-0.5f, -1.0f};
  chunk.processed_logprobs = {-0.25f, -2.0f};
  chunk.ranks = {1, 3};
  chunk.top_logprobs = {{{5, -0.5f}}, {{6, -0.125f}}};
  chunk.version_spans = {{4, 0, 1, 9}, {5, 1, 2, 9}};
  chunk.finish_reason = FinishReason::kStop;
  GenerateFormat format(request, "m", 4, 9);

  const ordered_json out = format.Whole({chunk});

  EXPECT_EQ(out["request_id"], "r1");
  EXPECT_EQ(out["prompt_token_ids"], ordered_json({3}));
  EXPECT_EQ(out["usage"]["completion_tokens"], 2);
  const ordered_json& choice = out["choices"][0];
  EXPECT_EQ(choice["token_ids"], ordered_json({5, 8}));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], 8);
  EXPECT_EQ(choice["weight_versions"], ordered_json::parse(R"([{"version": 4, "start": 0, "end": 1},
                                    {"version": 5, "start": 1, "end": 2}])"));
  EXPECT_EQ(
      choice["logprobs"]["content"][1],
      ordered_json::parse(R"({"token": "token_id:8", "token_id": 8, "logprob": -1.0, "rank": 3,
                "top_logprobs": [{"token": "token_id:6", "token_id": 6, "logprob": -0.125,
                                  "rank": 1}]})"));
  request.processed_logprobs = true;
  EXPECT_EQ(format.Whole({chunk})["choices"][0]["logprobs"]["content"][1]["logprob"], -2.0);
}

TEST(GenerateFormat, TheEndOfTheSequenceIsNoStopReason) {
  ASSERT_OK_AND_ASSIGN(const CompletionRequest request, Parse(R"({"token_ids": [3]})"));
  SampleChunk chunk;
  chunk.token_ids = {0};
  chunk.finish_reason = FinishReason::kStop;
  GenerateFormat format(request, "m", 0, 0);
  EXPECT_TRUE(format.Whole({chunk})["choices"][0]["stop_reason"].is_null());
  chunk.stop_string = "END";
  EXPECT_EQ(format.Whole({chunk})["choices"][0]["stop_reason"], "END");
}

}  // namespace
}  // namespace tandem::rollout::openai
