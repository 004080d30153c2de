#include "services/rollout/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "common/model/packed_attention.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Log-probs of a whole sequence by the model's plain forward, without cache.
std::vector<float> PlainScore(const model::Transformer& model, const model::Arena& arena,
                              const std::vector<int32_t>& tokens, double temperature = 1.0) {
  const at::NoGradGuard no_grad;
  const int64_t n = static_cast<int64_t>(tokens.size());
  at::Tensor ids = at::empty({n}, at::kLong);
  std::copy(tokens.begin(), tokens.end(), ids.mutable_data_ptr<int64_t>());
  const at::Tensor cu_seqlens = at::tensor({int64_t{0}, n}, at::kLong);
  model::PackedAttention attention(cu_seqlens, model::PackedAttention::Implementation::kEager);
  const at::Tensor positions = model::PackedPositions(cu_seqlens);
  const model::Rotary rotary = model.MakeRotary(positions);
  at::Tensor x = model.Embed(arena, ids, positions);
  for (int64_t layer = 0; layer < model.spec().num_layers(); ++layer) {
    x = model.Block(arena, layer, x, rotary, attention);
  }
  const at::Tensor logits = model.Logits(arena, model.FinalNorm(arena, x)).div(temperature);
  const at::Tensor logprobs = logits.to(at::kDouble).log_softmax(-1);
  std::vector<float> out;
  for (int64_t i = 0; i + 1 < n; ++i) {
    out.push_back(static_cast<float>(logprobs[i][tokens[i + 1]].item<double>()));
  }
  return out;
}

void ExpectNear(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

GenerationRequest Sampled(std::vector<int32_t> prompt, int64_t max_tokens, uint64_t seed) {
  GenerationRequest request;
  request.prompt_ids = std::move(prompt);
  request.max_tokens = max_tokens;
  request.seed = seed;
  return request;
}

TEST_F(EngineTest, ALongSampleOfAWindowedModelNeedsAFewBlocks) {
  model::ModelSpec spec = SmallSpec();
  for (model::LayerSpec& layer : spec.layers) layer.attention.window = 16;
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 16;
  options.max_model_len = 400;
  GenerationRequest request = Sampled(Prompt(60), 300, /*seed=*/5);
  request.ignore_eos = true;
  StartRandom(options, spec);
  const SampleChunk expected = Generate(request);

  // A step of 16 tokens sees 31, in at most 3 blocks of 16.
  options.kv_cache_bytes =
      4 * model::PagedKvCache::BytesPerBlock({.num_layers = 2, .num_kv_heads = 2, .head_dim = 12});
  StartRandom(options, spec);
  ASSERT_EQ(engine_->Info().num_kv_blocks, 4);
  EXPECT_EQ(engine_->limits().max_model_len, 400);
  const SampleChunk sample = Generate(request);

  EXPECT_EQ(sample.token_ids.size(), 300u);
  EXPECT_EQ(sample.token_ids, expected.token_ids);
  EXPECT_EQ(engine_->Info().num_free_kv_blocks, 4);
  std::vector<int32_t> tokens = request.prompt_ids;
  tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
  const auto arena = tandem::testing::PlainCopy(*engine_->weights().live());
  const std::vector<float> plain = PlainScore(*model_, *arena, tokens);
  ExpectNear(sample.logprobs, {plain.begin() + 59, plain.end()}, 1e-4f);
}

TEST_F(EngineTest, SamplesOfAPromptShareOnePrefill) {
  StartRandom({});
  GenerationRequest request = Sampled(Prompt(40), 20, /*seed=*/5);
  request.n = 4;
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  ASSERT_OK(outcome.status());
  EXPECT_EQ(engine_->Info().scheduler.num_prefilled_tokens, 40);
  std::set<std::vector<int32_t>> different;
  for (int32_t i = 0; i < 4; ++i) {
    const SampleChunk sample = outcome.sample(i);
    EXPECT_EQ(sample.token_ids.size(), 20u);
    EXPECT_EQ(sample.num_prompt_tokens, 40);
    EXPECT_EQ(sample.finish_reason, FinishReason::kLength);
    different.insert(sample.token_ids);
    // Each wrote into a cache of its own.
    std::vector<int32_t> all = Prompt(40);
    all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
    const std::vector<float> plain =
        PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), all);
    ExpectNear(sample.logprobs, {plain.begin() + 39, plain.end()}, 1e-4f);
  }
  EXPECT_EQ(different.size(), 4u);
}

TEST_F(EngineTest, ASeedGivesTheSameSamplesWhateverElseRuns) {
  StartRandom({.scheduler = {.max_num_seqs = 8, .max_num_batched_tokens = 16}});
  GenerationRequest request = Sampled(Prompt(9), 30, /*seed=*/77);
  request.filter = {.temperature = 0.9, .top_k = 40, .top_p = 0.95};
  const SampleChunk alone = Generate(request);
  std::vector<std::unique_ptr<Outcome>> others;
  for (int32_t i = 1; i < 6; ++i) {
    others.push_back(std::make_unique<Outcome>());
    Submit(Sampled(Prompt(10 + 3 * i, i), 25, i), *others.back());
  }
  const SampleChunk crowded = Generate(request);
  EXPECT_EQ(crowded.token_ids, alone.token_ids);
  ExpectNear(crowded.logprobs, alone.logprobs, 1e-4f);
  EXPECT_EQ(crowded.seed, 77u);
  for (const auto& other : others) EXPECT_TRUE(other->Wait());
}

TEST_F(EngineTest, ASampleIsThatOfItsIndexHoweverManyThereAre) {
  StartRandom({});
  GenerationRequest request = Sampled(Prompt(5), 12, 3);
  const SampleChunk first = Generate(request);
  request.n = 3;
  EXPECT_EQ(Generate(request).token_ids, first.token_ids);
}

TEST_F(EngineTest, DrawsASeedAndStatesIt) {
  StartRandom({});
  GenerationRequest request = Sampled(Prompt(5), 12, 0);
  request.seed.reset();
  const SampleChunk drawn = Generate(request);
  request.seed = drawn.seed;
  EXPECT_EQ(Generate(request).token_ids, drawn.token_ids);
}

TEST_F(EngineTest, LogProbsAreRawAndProcessed) {
  StartRandom({});
  GenerationRequest request = Sampled(Prompt(6), 10, 4);
  request.filter = {.temperature = 0.7, .top_k = 10};
  const SampleChunk sample = Generate(request);
  std::vector<int32_t> all = Prompt(6);
  all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
  const auto raw =
      PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), all);
  const auto processed =
      PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), all, 0.7);
  ExpectNear(sample.logprobs, {raw.begin() + 5, raw.end()}, 1e-4f);
  ExpectNear(sample.processed_logprobs, {processed.begin() + 5, processed.end()}, 1e-4f);
}

TEST_F(EngineTest, ScoreIsThatOfThePlainForward) {
  StartRandom({.scheduler = {.max_num_batched_tokens = 13}});
  Generate(Greedy(Prompt(64), 3));  // its cache must not hide positions from the score
  for (const double temperature : {1.0, 0.5}) {
    ASSERT_OK_AND_ASSIGN(const ScoreResult result,
                         Score({.token_ids = Prompt(70), .temperature = temperature}));
    ExpectNear(result.logprobs,
               PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()),
                          Prompt(70), temperature),
               1e-4f);
    EXPECT_EQ(result.policy_version, 0);
  }
  ASSERT_OK_AND_ASSIGN(const ScoreResult one, Score({.token_ids = {3}}));
  EXPECT_TRUE(one.logprobs.empty());
}

TEST_F(EngineTest, PromptsOfMoreSequencesThanMayRunStayCached) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  options.max_model_len = 64;
  StartRandom(options);
  for (const int64_t cached : {0, 48}) {
    for (int32_t episode = 0; episode < 7; ++episode) {
      EXPECT_EQ(Generate(Greedy(Prompt(50, episode + 1), 2)).num_cached_tokens, cached);
    }
  }
}

TEST_F(EngineTest, AKnownPromptIsReusedUntilTheWeightsChange) {
  StartRandom({});
  const SampleChunk first = Generate(Greedy(Prompt(50), 8));
  const SampleChunk again = Generate(Greedy(Prompt(50), 8));
  EXPECT_EQ(first.num_cached_tokens, 0);
  EXPECT_EQ(again.num_cached_tokens, 48);
  EXPECT_EQ(again.token_ids, first.token_ids);

  CommitRandom(/*version=*/1, /*seed=*/2);
  const SampleChunk updated = Generate(Greedy(Prompt(50), 8));

  EXPECT_EQ(updated.num_cached_tokens, 0);
  std::vector<int32_t> all = Prompt(50);
  all.insert(all.end(), updated.token_ids.begin(), updated.token_ids.end());
  const auto plain =
      PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), all);
  ExpectNear(updated.logprobs, {plain.begin() + 49, plain.end()}, 1e-4f);
}

TEST_F(EngineTest, EndsAtAStopIdButNotBeforeMinTokens) {
  StartRandom({.eos_token_ids = {11}});
  GenerationRequest request = Greedy(Prompt(7), 40);
  request.ignore_eos = true;
  const std::vector<int32_t> ids = Generate(request).token_ids;
  request.stop_token_ids = {ids[5]};
  const auto first = std::find(ids.begin(), ids.end(), ids[5]) - ids.begin();

  const SampleChunk stopped = Generate(request);
  EXPECT_EQ(stopped.token_ids, std::vector<int32_t>(ids.begin(), ids.begin() + first + 1));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);

  request.min_tokens = first + 2;
  EXPECT_GE(Generate(request).token_ids.size(), static_cast<size_t>(first + 2));
}

TEST_F(EngineTest, EndsAtAnEndOfSequenceIdUnlessToldToIgnoreIt) {
  StartRandom({});
  const std::vector<int32_t> ids = Generate(Greedy(Prompt(7), 20)).token_ids;
  StartRandom({.eos_token_ids = {ids[3]}});
  GenerationRequest request = Greedy(Prompt(7), 20);
  EXPECT_LE(Generate(request).token_ids.size(), 4u);
  request.ignore_eos = true;
  EXPECT_EQ(Generate(request).token_ids, ids);
}

TEST_F(EngineTest, NeverExceedsTheContext) {
  StartRandom({.max_model_len = 32});
  GenerationRequest request = Greedy(Prompt(20), 1);
  request.max_tokens.reset();
  const SampleChunk sample = Generate(request);
  EXPECT_EQ(sample.token_ids.size(), 12u);
  EXPECT_EQ(sample.finish_reason, FinishReason::kLength);
}

TEST_F(EngineTest, StreamsEachTokenOnce) {
  StartRandom({});
  GenerationRequest request = Greedy(Prompt(5), 9);
  const SampleChunk whole = Generate(request);
  request.stream = true;
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  EXPECT_EQ(outcome.chunks(0).size(), 9u);
  EXPECT_EQ(outcome.sample().token_ids, whole.token_ids);
}

TEST_F(EngineTest, BFloat16Generates) {
  StartRandom({.dtype = at::kBFloat16});
  const SampleChunk sample = Generate(Greedy(Prompt(30), 20));
  EXPECT_EQ(sample.token_ids.size(), 20u);
  std::vector<int32_t> all = Prompt(30);
  all.insert(all.end(), sample.token_ids.begin(), sample.token_ids.end());
  const auto plain =
      PlainScore(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), all);
  ExpectNear(sample.logprobs, {plain.begin() + 29, plain.end()}, 0.1f);
}

TEST_F(EngineTest, RefusesWorkWhileNothingIsCommitted) {
  Start({}, SmallSpec());
  Outcome outcome;
  EXPECT_THAT(engine_->Submit(Greedy(Prompt(3), 3), outcome.callbacks()).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("STALE")));
  EXPECT_THAT(Score({.token_ids = {1, 2}}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("STALE")));
}

TEST_F(EngineTest, AFullQueueIsRefused) {
  StartRandom({.max_num_requests = 1});
  absl::Notification paused;
  engine_->Pause(PauseMode::kKeep, [&](int64_t) { paused.Notify(); });
  ASSERT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
  Outcome first, second;
  Submit(Greedy(Prompt(3), 3), first);
  EXPECT_THAT(engine_->Submit(Greedy(Prompt(3), 3), second.callbacks()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("queue")));
  engine_->Resume([] {});
  EXPECT_TRUE(first.Wait());
}

TEST_F(EngineTest, LogitsThatAreNotFiniteFailTheRequestAlone) {
  StartRandom({});
  ASSERT_OK_AND_ASSIGN(auto arena, engine_->weights().Staged());
  tandem::testing::StageRandom(model_->spec(), 1, *arena);
  // A token that poisons whoever has it in the prompt.
  arena->Get(model_->table().embedding())[42].fill_(std::numeric_limits<float>::quiet_NaN());
  ASSERT_OK(engine_->Commit(1, absl::Now() + kPatience).status());
  Outcome poisoned;
  Submit(Greedy({1, 42, 3}, 5), poisoned);
  const SampleChunk other = Generate(Greedy({1, 2, 3}, 5));
  ASSERT_TRUE(poisoned.Wait());
  EXPECT_THAT(poisoned.status(), StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
  EXPECT_EQ(other.token_ids.size(), 5u);
}

TEST_F(EngineTest, ManyRequestsThroughATinyCacheAllEnd) {
  StartRandom({.kv_cache_bytes = 6 * 2 * 2 * 16 * (12 + 16) * 4,
               .scheduler = {.max_num_seqs = 16, .max_num_batched_tokens = 24}});
  std::vector<GenerationRequest> requests;
  for (int32_t i = 0; i < 200; ++i) {
    requests.push_back(Sampled(Prompt(1 + i % 60, i % 9), 1 + i % 30, i));
    requests.back().n = 1 + i % 5;
  }
  std::vector<Outcome> outcomes(requests.size());
  SubmitTogether(requests, outcomes);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_TRUE(outcomes[i].Wait());
    ASSERT_OK(outcomes[i].status());
    EXPECT_EQ(outcomes[i].sample().token_ids.size(), 1 + i % 30);
  }
  const EngineInfo info = engine_->Info();
  EXPECT_EQ(info.num_free_kv_blocks, info.num_kv_blocks);
  EXPECT_EQ(info.num_queued_tokens, 0);
  EXPECT_EQ(info.num_running_requests + info.num_waiting_requests, 0);
  EXPECT_GT(info.scheduler.num_preemptions, 0);
}

}  // namespace
}  // namespace tandem::rollout
