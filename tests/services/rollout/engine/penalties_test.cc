// Penalties and biases, from the request to the tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/services/rollout/engine/engine_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::Each;

class PenaltiesTest : public EngineTest {};

TEST_F(PenaltiesTest, ABiasDecidesWhichTokenIsDrawn) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(9), 6);
  request.penalties.logit_bias = {{41, 100.0f}};
  EXPECT_THAT(Generate(request).token_ids, Each(41));
}

TEST_F(PenaltiesTest, ForbiddenTokensAreNeverDrawn) {
  StartRandom({});
  const SampleChunk before = Generate(Greedy(Prompt(9), 12));
  GenerationRequest request = Greedy(Prompt(9), 12);
  for (const int32_t id : std::set(before.token_ids.begin(), before.token_ids.end())) {
    request.penalties.logit_bias.emplace_back(id, -100.0f);
  }
  const SampleChunk after = Generate(request);
  for (const int32_t id : after.token_ids) {
    EXPECT_EQ(std::count(before.token_ids.begin(), before.token_ids.end(), id), 0) << id;
  }
}

TEST_F(PenaltiesTest, AFrequencyPenaltyMakesRepetitionEnd) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(9), 40);
  // Without a penalty one token wins each time.
  request.penalties.logit_bias = {{41, 10.0f}};
  const auto count = [](const SampleChunk& chunk) {
    return std::count(chunk.token_ids.begin(), chunk.token_ids.end(), 41);
  };
  const auto without = count(Generate(request));
  request.penalties.frequency = 2.0;
  EXPECT_LT(count(Generate(request)), without);
}

TEST_F(PenaltiesTest, RawLogProbsAreTheModelsAndProcessedOnesAreNot) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(9), 5);
  request.penalties = {.logit_bias = {{41, 100.0f}}};
  request.num_top_logprobs = 1;
  const SampleChunk raw = Generate(request);
  for (size_t i = 0; i < raw.token_ids.size(); ++i) {
    EXPECT_LT(raw.logprobs[i], -0.5f);
    EXPECT_NEAR(raw.processed_logprobs[i], 0.0f, 1e-6f);
  }
  ScoreRequest score;
  score.token_ids = Prompt(9);
  score.token_ids.insert(score.token_ids.end(), raw.token_ids.begin(), raw.token_ids.end());
  ASSERT_OK_AND_ASSIGN(const ScoreResult scored, Score(score));
  for (size_t i = 0; i < raw.logprobs.size(); ++i) {
    EXPECT_NEAR(scored.logprobs[8 + i], raw.logprobs[i], 1e-4f) << i;
  }
}

TEST_F(PenaltiesTest, TopLogProbsAndRanksAreOfTheLogitsThatAreAskedFor) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(9), 4);
  request.penalties.logit_bias = {{41, 100.0f}};
  request.num_top_logprobs = 2;
  request.return_ranks = true;
  Outcome raw, processed;
  Submit(request, raw);
  ASSERT_TRUE(raw.Wait());
  request.processed_top_logprobs = true;
  Submit(request, processed);
  ASSERT_TRUE(processed.Wait());
  const SampleChunk a = raw.chunks(0).front(), b = processed.chunks(0).front();
  ASSERT_EQ(a.ranks.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_GT(a.ranks[i], 1);
    EXPECT_NE(a.top_logprobs[i][0].id, 41);
    EXPECT_EQ(b.ranks[i], 1);
    EXPECT_EQ(b.top_logprobs[i][0].id, 41);
    EXPECT_NEAR(b.top_logprobs[i][0].logprob, b.processed_logprobs[i], 1e-5);
  }
}

// The same whatever else runs, for each sample of a group, and after a break.
TEST_F(PenaltiesTest, SamplesDependOnTheirRequestAlone) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(9), 24);
  request.filter.temperature = 1.0;
  request.seed = 5;
  request.n = 3;
  request.penalties = {
      .logit_bias = {{3, 1.5f}}, .repetition = 1.3, .frequency = 0.4, .presence = 0.2};
  Outcome alone;
  Submit(request, alone);
  ASSERT_TRUE(alone.Wait());

  Outcome again, other;
  Submit(Greedy(Prompt(20, 1), 30), other);
  Submit(request, again);
  ASSERT_TRUE(again.Wait());
  ASSERT_TRUE(other.Wait());
  EXPECT_EQ(other.sample().token_ids, Generate(Greedy(Prompt(20, 1), 30)).token_ids);

  GenerationRequest resumed = request;
  Outcome rest;
  for (int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again.sample(i).token_ids, alone.sample(i).token_ids) << i;
    const std::vector<int32_t> ids = alone.sample(i).token_ids;
    resumed.begun.push_back({i, {ids.begin(), ids.begin() + 10}});
  }
  Submit(resumed, rest);
  ASSERT_TRUE(rest.Wait());
  for (int32_t i = 0; i < 3; ++i) {
    const std::vector<int32_t> ids = alone.sample(i).token_ids;
    EXPECT_EQ(rest.sample(i).token_ids, std::vector<int32_t>(ids.begin() + 10, ids.end())) << i;
  }
}

TEST_F(PenaltiesTest, BadValuesAreRefusedByName) {
  StartRandom({});
  const auto field = [&](const PenaltyParams& penalties) {
    GenerationRequest request = Greedy(Prompt(3), 2);
    request.penalties = penalties;
    const auto status = engine_->Submit(request, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    const auto bad = rpc::GetDetail<common::v1::BadField>(status);
    return bad.has_value() ? bad->field() : "none";
  };
  EXPECT_EQ(field({.presence = 2.5}), "sampling.presence_penalty");
  EXPECT_EQ(field({.frequency = -3}), "sampling.frequency_penalty");
  EXPECT_EQ(field({.repetition = 0}), "sampling.repetition_penalty");
  EXPECT_EQ(field({.repetition = std::nan("")}), "sampling.repetition_penalty");
  EXPECT_EQ(field({.logit_bias = {{97, 1.0f}}}), "sampling.logit_bias[97]");
  EXPECT_EQ(field({.logit_bias = {{5, 101.0f}}}), "sampling.logit_bias[5]");
}

}  // namespace
}  // namespace tandem::rollout
