// Scores of a part of a sequence: the tokens before it come from the prefix cache, and the log-probs are
// the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <memory>
#include <tuple>

#include "common/model/numerics.h"
#include "tests/services/rollout/engine/engine_fixture.h"

namespace tandem::rollout {
namespace {

using ::testing::SizeIs;

constexpr int64_t kBlock = 16;
constexpr int64_t kPrompt = 100;  // 6 blocks and 4 tokens
constexpr int64_t kCompletion = 21;
constexpr int kSamples = 8;

// The samples of a group, each after the same prompt.
std::vector<std::vector<int32_t>> Group() {
  std::vector<std::vector<int32_t>> out;
  for (int i = 0; i < kSamples; ++i) {
    std::vector<int32_t>& ids = out.emplace_back(Prompt(kPrompt));
    const std::vector<int32_t> completion = Prompt(kCompletion, 5 + i);
    ids.insert(ids.end(), completion.begin(), completion.end());
  }
  return out;
}

class ScoreContextTest : public EngineTest, public ::testing::WithParamInterface<at::ScalarType> {
 protected:
  void SetUp() override { model::SetNumerics(model::Numerics::kExact); }
  void TearDown() override {
    engine_.reset();
    model::SetNumerics(model::Numerics::kFast);
  }

  EngineOptions Options() const {
    EngineOptions options;
    options.dtype = GetParam();
    options.block_size = kBlock;
    options.scheduler.max_num_batched_tokens = 48;  // prompts in chunks
    return options;
  }

  // Has all of them scored, from one step on, behind `others`.
  std::vector<ScoreResult> ScoreTogether(const std::vector<ScoreRequest>& requests,
                                         const std::vector<GenerationRequest>& others,
                                         std::vector<Outcome>& outcomes) {
    using Answer = absl::StatusOr<ScoreResult>;
    std::vector<std::promise<Answer>> answers(requests.size());
    absl::Notification paused;
    engine_->Pause(PauseMode::kKeep, [&paused](int64_t) { paused.Notify(); });
    EXPECT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
    for (size_t i = 0; i < others.size(); ++i) Submit(others[i], outcomes[i]);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_OK(
          engine_
              ->Score(requests[i],
                      [&answers, i](Answer answer) { answers[i].set_value(std::move(answer)); })
              .status());
    }
    engine_->Resume([] {});
    std::vector<ScoreResult> out;
    for (std::promise<Answer>& answer : answers) {
      Answer result = answer.get_future().get();
      EXPECT_OK(result.status());
      out.push_back(*std::move(result));
    }
    return out;
  }

  std::vector<ScoreResult> ScoreGroup(int64_t first_scored, int32_t num_top = 0) {
    std::vector<ScoreRequest> requests;
    for (std::vector<int32_t>& ids : Group()) {
      requests.push_back(
          {.token_ids = std::move(ids), .num_top_logprobs = num_top, .first_scored = first_scored});
    }
    std::vector<Outcome> none;
    return ScoreTogether(requests, {}, none);
  }
};

TEST_P(ScoreContextTest, AGroupComputesItsPromptOnceAndHasTheSameBits) {
  EngineOptions options = Options();
  options.scheduler.max_num_batched_tokens = 256;
  StartRandom(options);
  const std::vector<ScoreResult> whole = ScoreGroup(/*first_scored=*/0, /*num_top=*/2);
  const SchedulerStats all = engine_->Info().scheduler;
  EXPECT_EQ(all.num_prefilled_tokens, kSamples * (kPrompt + kCompletion));
  EXPECT_EQ(all.num_cached_tokens, 0);

  StartRandom(options);
  const std::vector<ScoreResult> part = ScoreGroup(/*first_scored=*/kPrompt, /*num_top=*/2);

  for (int i = 0; i < kSamples; ++i) {
    EXPECT_EQ(part[i].logprobs,
              std::vector<float>(whole[i].logprobs.end() - kCompletion, whole[i].logprobs.end()));
    ASSERT_THAT(part[i].top_logprobs, SizeIs(kCompletion));
    for (int64_t t = 0; t < kCompletion; ++t) {
      const std::vector<TokenLogprob>& found = part[i].top_logprobs[t];
      const std::vector<TokenLogprob>& expected = whole[i].top_logprobs[kPrompt - 1 + t];
      ASSERT_EQ(found.size(), 2u);
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_EQ(found[k].id, expected[k].id);
        EXPECT_EQ(found[k].logprob, expected[k].logprob);
      }
    }
  }
  // The others find the prompt's whole blocks.
  const int64_t shared = kPrompt / kBlock * kBlock;
  const SchedulerStats stats = engine_->Info().scheduler;
  EXPECT_EQ(stats.num_cached_tokens, (kSamples - 1) * shared);
  EXPECT_EQ(stats.num_prefilled_tokens + stats.num_cached_tokens,
            kSamples * (kPrompt + kCompletion));
}

TEST_P(ScoreContextTest, EveryPlaceGivesTheLogProbsFromThereOn) {
  StartRandom(Options());
  const std::vector<int32_t> ids = Prompt(70);
  ASSERT_OK_AND_ASSIGN(const ScoreResult whole, Score({.token_ids = ids}));
  ASSERT_THAT(whole.logprobs, SizeIs(69));
  // At first from what the whole left in the cache, which must not hide a position.
  for (const int64_t first : {0, 1, 2, 15, 16, 17, 31, 48, 49, 50, 68, 69}) {
    ASSERT_OK_AND_ASSIGN(const ScoreResult part, Score({.token_ids = ids, .first_scored = first}));
    const int64_t from = std::max<int64_t>(1, first) - 1;
    EXPECT_EQ(part.logprobs,
              std::vector<float>(whole.logprobs.begin() + from, whole.logprobs.end()))
        << first;
  }
}

TEST_P(ScoreContextTest, AnEndThatAnotherSequenceLeftIsNotTakenForWhatIsScored) {
  StartRandom(Options());
  // Leaves a tail of tokens 32 to 42 in the cache.
  const SampleChunk sample = Generate(Greedy(Prompt(40), 3));
  std::vector<int32_t> ids = Prompt(40);
  ids.insert(ids.end(), sample.token_ids.begin(), sample.token_ids.end());
  ASSERT_OK_AND_ASSIGN(const ScoreResult part, Score({.token_ids = ids, .first_scored = 35}));
  EXPECT_THAT(part.logprobs, SizeIs(8));
  EXPECT_EQ(part.logprobs.back(), sample.logprobs.back());
}

TEST_P(ScoreContextTest, APreemptedScoreHasEachLogProbOnce) {
  const ScoreRequest request = {.token_ids = Prompt(90), .first_scored = 5};
  StartRandom(Options());
  ASSERT_OK_AND_ASSIGN(const ScoreResult alone, Score(request));
  ASSERT_THAT(alone.logprobs, SizeIs(85));

  // Four older requests, which decode, leave the score two tokens of a step; at 49 tokens each they need
  // all 16 blocks.
  EngineOptions options = Options();
  options.scheduler.max_num_batched_tokens = 6;
  options.max_model_len = 96;
  options.kv_cache_bytes =
      16 * static_cast<int64_t>(c10::elementSize(GetParam())) / 4 *
      model::PagedKvCache::BytesPerBlock({.num_layers = 2, .num_kv_heads = 2, .head_dim = 12});
  StartRandom(options);
  ASSERT_EQ(engine_->Info().num_kv_blocks, 16);
  std::vector<GenerationRequest> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(Greedy(Prompt(10, 20 + i), 60));
    others.back().ignore_eos = true;
  }
  std::vector<Outcome> outcomes(others.size());
  const std::vector<ScoreResult> found = ScoreTogether({request}, others, outcomes);

  for (Outcome& outcome : outcomes) ASSERT_TRUE(outcome.Wait());
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
  EXPECT_EQ(found.at(0).logprobs, alone.logprobs);
}

INSTANTIATE_TEST_SUITE_P(Types, ScoreContextTest, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) {
                           return info.param == at::kFloat ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace tandem::rollout
