// Samples that go on from what an earlier call had: the two parts are what one call gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/test_data.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kTokens = 20;
constexpr char kModel[] = "models/tinystories-656k";

std::vector<int32_t> Head(const std::vector<int32_t>& ids, size_t count) {
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<int32_t> Tail(const std::vector<int32_t>& ids, size_t from) {
  return {ids.begin() + static_cast<std::ptrdiff_t>(from), ids.end()};
}

class ContinuationTest : public EngineTest {
 protected:
  // A seeded group whose samples differ.
  static GenerationRequest Group(int32_t n) {
    GenerationRequest request;
    request.prompt_ids = Prompt(37);  // two blocks and a part
    request.max_tokens = kTokens;
    request.seed = 11;
    request.n = n;
    request.ignore_eos = true;
    return request;
  }

  std::vector<SampleChunk> GenerateAll(const GenerationRequest& request) {
    Outcome outcome;
    Submit(request, outcome);
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    std::vector<SampleChunk> samples;
    for (int32_t i = 0; i < request.n; ++i) samples.push_back(outcome.sample(i));
    return samples;
  }

  void StartStories() {
    ASSERT_OK_AND_ASSIGN(tokenizer_, tokenizer::Tokenizer::Load(testing::TestData(kModel)));
    StartFolder({}, testing::TestData(kModel));
  }
};

TEST_F(ContinuationTest, ASeededGroupGoesOnAsIfItHadNeverStopped) {
  StartRandom({});
  const std::vector<SampleChunk> whole = GenerateAll(Group(4));
  ASSERT_NE(whole[0].token_ids, whole[1].token_ids);
  GenerationRequest request = Group(4);
  // The first had 7 tokens, the second has ended, the third had one, the fourth had not begun.
  request.begun = {{0, Head(whole[0].token_ids, 7), false},
                   {1, whole[1].token_ids, true},
                   {2, Head(whole[2].token_ids, 1), false}};

  // As it would be on another replica: nothing of it is in the cache.
  StartRandom({});
  const std::vector<SampleChunk> rest = GenerateAll(request);

  for (const auto& [index, from] : {std::pair{0, 7}, {2, 1}, {3, 0}}) {
    EXPECT_EQ(rest[index].token_ids, Tail(whole[index].token_ids, from)) << "sample " << index;
    EXPECT_EQ(rest[index].finish_reason, FinishReason::kLength);
    ASSERT_EQ(rest[index].version_spans.size(), 1u);
    EXPECT_EQ(rest[index].version_spans[0].end, kTokens - from);
    for (size_t i = 0; i < rest[index].logprobs.size(); ++i) {
      EXPECT_NEAR(rest[index].logprobs[i], whole[index].logprobs[from + i], 1e-5);
    }
  }
  EXPECT_TRUE(rest[1].token_ids.empty());
  EXPECT_EQ(engine_->Info().num_queued_tokens, 0);
  EXPECT_EQ(engine_->Info().num_free_kv_blocks, engine_->Info().num_kv_blocks);
}

TEST_F(ContinuationTest, AtEverySeamAGreedySampleIsTheSame) {
  StartRandom({});
  const std::vector<int32_t> whole = Generate(Greedy(Prompt(9), kTokens)).token_ids;
  for (size_t seam = 0; seam < whole.size(); ++seam) {
    GenerationRequest request = Greedy(Prompt(9), kTokens);
    request.begun = {{0, Head(whole, seam), false}};
    const SampleChunk rest = Generate(request);
    EXPECT_EQ(rest.token_ids, Tail(whole, seam)) << "seam " << seam;
    EXPECT_EQ(rest.num_prompt_tokens, 9);
  }
}

TEST_F(ContinuationTest, SpansSayWhichWeightsSampledTheRest) {
  StartRandom({});
  const std::vector<int32_t> old_ids = Generate(Greedy(Prompt(9), kTokens)).token_ids;
  CommitRandom(/*version=*/1, /*seed=*/2);
  GenerationRequest request = Greedy(Prompt(9), kTokens);
  request.begun = {{0, Head(old_ids, 8), false}};

  const SampleChunk rest = Generate(request);

  ASSERT_EQ(rest.version_spans.size(), 1u);
  EXPECT_EQ(rest.version_spans[0].policy_version, 1);
  EXPECT_EQ(rest.version_spans[0].begin, 0);
  EXPECT_EQ(rest.version_spans[0].end, kTokens - 8);
  // What the new weights say after the old ones' tokens.
  ScoreRequest score;
  score.token_ids = Prompt(9);
  for (const auto& ids : {Head(old_ids, 8), rest.token_ids}) {
    score.token_ids.insert(score.token_ids.end(), ids.begin(), ids.end());
  }
  ASSERT_OK_AND_ASSIGN(const ScoreResult scored, Score(score));
  for (size_t i = 0; i < rest.logprobs.size(); ++i) {
    EXPECT_NEAR(rest.logprobs[i], scored.logprobs[9 + 8 - 1 + i], 1e-4);
  }
}

TEST_F(ContinuationTest, WhatEndsTheSampleAlreadyIsAnsweredAtOnce) {
  StartRandom({});
  const std::vector<SampleChunk> whole = GenerateAll(Group(2));
  GenerationRequest request = Group(2);
  request.begun = {{0, whole[0].token_ids, false}, {1, Head(whole[1].token_ids, 5), false}};
  request.stop_token_ids = {whole[1].token_ids[4]};

  const std::vector<SampleChunk> rest = GenerateAll(request);

  EXPECT_TRUE(rest[0].token_ids.empty());
  EXPECT_EQ(rest[0].finish_reason, FinishReason::kLength);
  EXPECT_TRUE(rest[1].token_ids.empty());
  EXPECT_EQ(rest[1].finish_reason, FinishReason::kStop);

  request = Group(1);
  request.begun = {{0, whole[0].token_ids, true}};
  EXPECT_TRUE(GenerateAll(request)[0].token_ids.empty());
}

TEST_F(ContinuationTest, AnAbortedSampleGoesOnAndIsCountedOnce) {
  StartRandom({});
  const std::vector<SampleChunk> whole = GenerateAll(Group(2));
  GenerationRequest request = Group(2);
  request.begun = {{1, Head(whole[1].token_ids, 12), false}};
  request.stream = true;
  request.id = "again";
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.WaitForTokens(0, 1));
  absl::Notification aborted;
  engine_->Abort({"again"}, false, [&](int64_t) { aborted.Notify(); });
  ASSERT_TRUE(aborted.WaitForNotificationWithTimeout(kPatience));
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(engine_->Info().num_queued_tokens, 0);

  const auto joined = [&](int32_t index, std::vector<int32_t> ids) {
    const std::vector<int32_t> more = outcome.sample(index).token_ids;
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  };
  GenerationRequest last = Group(2);
  last.begun = {{0, joined(0, {}), false}, {1, joined(1, request.begun[0].token_ids), false}};
  const std::vector<SampleChunk> rest = GenerateAll(last);
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(rest[i].token_ids, Tail(whole[i].token_ids, last.begun[i].token_ids.size()));
  }
}

TEST_F(ContinuationTest, TextAndStopStringsGoOnAcrossTheSeam) {
  SKIP_WITHOUT_DATA(kModel);
  StartStories();
  ASSERT_OK_AND_ASSIGN(const auto prompt, tokenizer_->Encode("Once upon a time", true));
  GenerationRequest request = Greedy(prompt, 40);
  request.return_text = true;
  const SampleChunk whole = Generate(request);
  request.stop = {whole.text.substr(40, 9)};
  const SampleChunk stopped = Generate(request);
  ASSERT_LT(stopped.token_ids.size(), whole.token_ids.size());
  for (size_t seam = 1; seam < stopped.token_ids.size(); ++seam) {
    GenerationRequest rest = request;
    rest.stream = true;
    rest.begun = {{0, Head(stopped.token_ids, seam), false}};
    const SampleChunk chunk = Generate(rest);
    EXPECT_EQ(chunk.token_ids, Tail(stopped.token_ids, seam));
    EXPECT_EQ(chunk.text, stopped.text) << "seam " << seam;  // all of it
    EXPECT_EQ(chunk.finish_reason, FinishReason::kStop);
  }
}

TEST_F(ContinuationTest, RefusesWhatCannotHaveBeenSampled) {
  StartRandom({});
  const auto refusal = [&](std::vector<BegunSample> begun) {
    GenerationRequest request = Group(2);
    request.begun = std::move(begun);
    Outcome outcome;
    const auto handle = engine_->Submit(request, outcome.callbacks());
    if (!handle.ok()) return handle.status();
    EXPECT_TRUE(outcome.Wait());
    return outcome.status();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refusal({{2, {1}, false}}), StatusIs(kInvalid, HasSubstr("begun[0].index")));
  EXPECT_THAT(refusal({{0, {1}, false}, {0, {2}, false}}),
              StatusIs(kInvalid, HasSubstr("begun[1].index")));
  EXPECT_THAT(refusal({{0, {97}, false}}), StatusIs(kInvalid, HasSubstr("begun[0].token_ids[0]")));
  EXPECT_THAT(refusal({{0, std::vector<int32_t>(kTokens + 1, 1), false}}),
              StatusIs(kInvalid, AllOf(HasSubstr("begun[0].token_ids"), HasSubstr("at most 20"))));

  GenerationRequest request = Group(1);
  request.stop_token_ids = {5};
  request.begun = {{0, {4, 5, 6}, false}};
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_THAT(outcome.status(), StatusIs(kInvalid, HasSubstr("ends with its token 2 of 3")));
}

}  // namespace
}  // namespace tandem::rollout
