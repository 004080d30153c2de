#include "services/rollout/engine/limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

const RequestLimits kLimits{.vocab_size = 100, .max_model_len = 16, .has_tokenizer = false};

GenerationRequest Valid() {
  GenerationRequest request;
  request.prompt_ids = {1, 2, 3};
  return request;
}

std::string FieldAtFault(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const auto field = rpc::GetDetail<common::v1::BadField>(status);
  return field.has_value() ? field->field() : "";
}

TEST(LimitsTest, AcceptsWhatFits) {
  EXPECT_OK(CheckRequest(Valid(), kLimits));
  GenerationRequest request = Valid();
  request.prompt_ids.assign(15, 99);
  request.filter = {.temperature = 0.0, .top_k = 1000, .top_p = 1e-9, .min_p = 1.0};
  request.max_tokens = 1;
  request.n = kMaxSamples;
  EXPECT_OK(CheckRequest(request, kLimits));
}

TEST(LimitsTest, NamesTheFieldAtFault) {
  const struct {
    std::string field;
    std::function<void(GenerationRequest&)> spoil;
  } cases[] = {
      {"token_ids", [](auto& r) { r.prompt_ids.clear(); }},
      {"token_ids", [](auto& r) { r.prompt_ids.assign(16, 1); }},
      {"token_ids.ids[1]", [](auto& r) { r.prompt_ids[1] = 100; }},
      {"token_ids.ids[2]", [](auto& r) { r.prompt_ids[2] = -5; }},
      {"sampling.temperature", [](auto& r) { r.filter.temperature = -0.1; }},
      {"sampling.temperature", [](auto& r) { r.filter.temperature = NAN; }},
      {"sampling.temperature", [](auto& r) { r.filter.temperature = INFINITY; }},
      {"sampling.top_k", [](auto& r) { r.filter.top_k = -1; }},
      {"sampling.top_p", [](auto& r) { r.filter.top_p = 0.0; }},
      {"sampling.top_p", [](auto& r) { r.filter.top_p = NAN; }},
      {"sampling.min_p", [](auto& r) { r.filter.min_p = 1.01; }},
      {"sampling.n", [](auto& r) { r.n = 0; }},
      {"sampling.n", [](auto& r) { r.n = std::numeric_limits<int32_t>::max(); }},
      {"sampling.max_tokens", [](auto& r) { r.max_tokens = 0; }},
      {"sampling.min_tokens", [](auto& r) { r.min_tokens = -1; }},
      {"sampling.min_tokens",
       [](auto& r) {
         r.max_tokens = 3;
         r.min_tokens = 4;
       }},
      {"sampling.stop_token_ids[0]", [](auto& r) { r.stop_token_ids = {100}; }},
      {"sampling.stop", [](auto& r) { r.stop = {"x"}; }},
      {"sampling.stop[0]", [](auto& r) { r.stop = {""}; }},
      {"return_text", [](auto& r) { r.return_text = true; }},
  };
  for (const auto& c : cases) {
    GenerationRequest request = Valid();
    c.spoil(request);
    EXPECT_EQ(FieldAtFault(CheckRequest(request, kLimits)), c.field);
  }
}

TEST(LimitsTest, SaysWhatWasExpectedAndFound) {
  GenerationRequest request = Valid();
  request.prompt_ids[1] = -1;  // 2^32 - 1 on the wire
  EXPECT_THAT(CheckRequest(request, kLimits).message(),
              ::testing::AllOf(::testing::HasSubstr("100"), ::testing::HasSubstr("4294967295")));
}

TEST(LimitsTest, ScoresHaveTheirOwnLimits) {
  EXPECT_OK(CheckRequest(ScoreRequest{.token_ids = std::vector<int32_t>(16, 1)}, kLimits));
  EXPECT_EQ(FieldAtFault(CheckRequest(ScoreRequest{}, kLimits)), "token_ids");
  EXPECT_EQ(FieldAtFault(CheckRequest(ScoreRequest{.token_ids = {1, 100}}, kLimits)),
            "token_ids[1]");
  EXPECT_EQ(FieldAtFault(CheckRequest(ScoreRequest{.token_ids = {1}, .temperature = 0.0}, kLimits)),
            "temperature");
  const auto with_top = [](int32_t count, double temperature = 1.0) {
    return ScoreRequest{.token_ids = {1, 2}, .temperature = temperature, .num_top_logprobs = count};
  };
  EXPECT_OK(CheckRequest(with_top(1024), kLimits));
  EXPECT_EQ(FieldAtFault(CheckRequest(with_top(-1), kLimits)), "num_top_logprobs");
  EXPECT_EQ(FieldAtFault(CheckRequest(with_top(1025), kLimits)), "num_top_logprobs");
  EXPECT_EQ(FieldAtFault(CheckRequest(with_top(1, 0.5), kLimits)), "temperature");
}

TEST(LimitsTest, AScoreBeginsAtOneOfItsTokens) {
  const auto from = [](int64_t first) {
    return ScoreRequest{.token_ids = {1, 2, 3}, .first_scored = first};
  };
  for (const int64_t first : {0, 1, 2}) EXPECT_OK(CheckRequest(from(first), kLimits));
  for (const int64_t first : {-1, 3}) {
    EXPECT_EQ(FieldAtFault(CheckRequest(from(first), kLimits)), "first_scored_token");
  }
}

TEST(LimitsTest, TheLikeliestIdsOfASequenceFitInAMessage) {
  RequestLimits limits = kLimits;
  limits.max_model_len = 4096;
  ScoreRequest request{.token_ids = std::vector<int32_t>(1464, 1), .num_top_logprobs = 1024};
  EXPECT_OK(CheckRequest(request, limits));
  request.token_ids.push_back(1);
  EXPECT_EQ(FieldAtFault(CheckRequest(request, limits)), "num_top_logprobs");
  request.first_scored = 1;
  EXPECT_OK(CheckRequest(request, limits));
}

}  // namespace
}  // namespace tandem::rollout
