// The experts that a request returns are those that the model chooses, however it was computed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/model/expert_recorder.h"
#include "common/model/numerics.h"
#include "common/model/packed_attention.h"
#include "tests/services/rollout/engine/engine_fixture.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A dense layer and two with experts.
model::ModelSpec ExpertSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.layers.push_back(spec.layers[0]);
  for (const int layer : {1, 2}) {
    spec.layers[layer].experts = {
        .num_experts = 7, .intermediate_size = 24, .routing = {.top_k = 2, .normalize = true}};
  }
  return spec;
}

using Experts = std::vector<uint16_t>;

class RoutedExpertsTest : public EngineTest {
 protected:
  // Exact, so that a choice does not hang on the batch.
  RoutedExpertsTest() { model::SetNumerics(model::Numerics::kExact); }
  ~RoutedExpertsTest() override { model::SetNumerics(model::Numerics::kFast); }

  static GenerationRequest Request(int32_t n, int64_t max_tokens = 12) {
    GenerationRequest request;
    request.prompt_ids = Prompt(37);
    request.max_tokens = max_tokens;
    request.seed = 11;
    request.n = n;
    request.ignore_eos = true;
    request.return_routed_experts = true;
    return request;
  }

  // Of all tokens, with the live weights.
  Experts Computed(const std::vector<int32_t>& tokens) {
    const auto count = static_cast<int64_t>(tokens.size());
    const model::RoutedLayout layout = model::RoutedLayout::Of(model_->spec()).value();
    model::ExpertRecorder recorder(layout, count);
    const model::RouterPass routers{.recorder = &recorder};
    const c10::InferenceMode inference;
    const model::ParameterProvider& params = *engine_->weights().live_parameters();
    const at::Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()));
    const at::Tensor positions = at::arange(count);
    model::PackedAttention attention(at::tensor(std::vector<int64_t>{0, count}));
    const model::Rotary rotary = model_->MakeRotary(positions);
    at::Tensor x = model_->Embed(params, ids, positions);
    for (int64_t layer = 0; layer < model_->spec().num_layers(); ++layer) {
      x = model_->Block(params, layer, x, rotary, attention, nullptr, &routers);
    }
    const auto experts = recorder.Of(0, count);
    return {experts.begin(), experts.end()};
  }

  // Checks a sample's experts against those computed from all its tokens.
  void ExpectComputed(const GenerationRequest& request, const SampleChunk& sample,
                      const Experts& prompt, const Experts& experts) {
    std::vector<int32_t> tokens = request.prompt_ids;
    tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
    Experts expected = Computed(tokens);
    const size_t each = expected.size() / tokens.size();
    // The last token was not computed.
    std::fill(expected.end() - each, expected.end(), model::kUnknownExpert);
    const size_t of_prompt = request.prompt_ids.size() * each;
    EXPECT_EQ(prompt, Experts(expected.begin(), expected.begin() + of_prompt));
    EXPECT_EQ(experts, Experts(expected.begin() + of_prompt, expected.end()));
  }

  void ExpectComputed(const GenerationRequest& request, Outcome& outcome) {
    for (int32_t i = 0; i < request.n; ++i) {
      Experts prompt, experts;
      for (const SampleChunk& chunk : outcome.chunks(i)) {
        EXPECT_EQ(chunk.prompt_routed_experts.empty(), !chunk.first);
        if (chunk.first) prompt = chunk.prompt_routed_experts;
        experts.insert(experts.end(), chunk.routed_experts.begin(), chunk.routed_experts.end());
      }
      ExpectComputed(request, outcome.sample(i), prompt, experts);
    }
  }

  // Returns the number of prompt tokens that were in the cache.
  int64_t GenerateAndExpect(const GenerationRequest& request) {
    Outcome outcome;
    Submit(request, outcome);
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    ExpectComputed(request, outcome);
    return outcome.chunks(0).front().num_cached_tokens;
  }
};

TEST_F(RoutedExpertsTest, AreThoseOfPromptAndSamples) {
  StartRandom({}, ExpertSpec());
  GenerateAndExpect(Request(/*n=*/3));
}

TEST_F(RoutedExpertsTest, ComeInAStreamOneTokenLate) {
  StartRandom({}, ExpertSpec());
  GenerationRequest request = Request(/*n=*/2);
  request.stream = true;
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  const std::vector<SampleChunk> chunks = outcome.chunks(1);
  ASSERT_EQ(chunks.size(), 12u);
  EXPECT_TRUE(chunks[0].routed_experts.empty());
  EXPECT_EQ(chunks[1].routed_experts.size(), 4u);
  EXPECT_EQ(chunks[11].routed_experts.size(), 8u);
  ExpectComputed(request, outcome);
}

TEST_F(RoutedExpertsTest, OfAPromptInChunksAndInTheCacheAreComplete) {
  EngineOptions options;
  options.scheduler.max_num_batched_tokens = 9;
  StartRandom(options, ExpertSpec());
  GenerationRequest without = Request(/*n=*/1);
  without.return_routed_experts = false;
  Generate(without);
  // The prompt's blocks are cached, but not its experts; then both are.
  EXPECT_EQ(GenerateAndExpect(Request(/*n=*/2)), 0);
  EXPECT_EQ(GenerateAndExpect(Request(/*n=*/2)), 32);
  EXPECT_EQ(Generate(without).num_cached_tokens, 32);
}

TEST_F(RoutedExpertsTest, OfALaterTurnAreThoseOfTheEarlierOnes) {
  StartRandom({}, ExpertSpec());
  GenerationRequest request = Request(/*n=*/1, /*max_tokens=*/30);
  const SampleChunk first = Generate(request);
  request.prompt_ids.insert(request.prompt_ids.end(), first.token_ids.begin(),
                            first.token_ids.end());
  request.prompt_ids.insert(request.prompt_ids.end(), {3, 1, 4});
  EXPECT_EQ(GenerateAndExpect(request), 64);  // 37 + 29 were computed, in blocks of 16
}

TEST_F(RoutedExpertsTest, OfOlderWeightsServeNoRequestOfNewerOnes) {
  StartRandom({}, ExpertSpec());
  EXPECT_EQ(GenerateAndExpect(Request(/*n=*/1)), 0);
  CommitRandom(/*version=*/1, /*seed=*/5);
  EXPECT_EQ(GenerateAndExpect(Request(/*n=*/1)), 0);
  EXPECT_EQ(GenerateAndExpect(Request(/*n=*/1)), 32);
}

TEST_F(RoutedExpertsTest, OfPreemptedSamplesAreThoseOfTheFirstComputation) {
  EngineOptions options;
  // For 2 of 4 samples of 37 + 20 tokens.
  options.kv_cache_bytes =
      8 * model::PagedKvCache::BytesPerBlock({.num_layers = 3, .num_kv_heads = 2, .head_dim = 12});
  options.max_model_len = 64;
  StartRandom(options, ExpertSpec());
  GenerateAndExpect(Request(/*n=*/4, /*max_tokens=*/20));
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
}

TEST_F(RoutedExpertsTest, OfAContinuedSampleAreThoseOfItsNewTokens) {
  StartRandom({}, ExpertSpec());
  GenerationRequest request = Request(/*n=*/1);
  const SampleChunk whole = Generate(request);
  request.begun = {{0, {whole.token_ids.begin(), whole.token_ids.begin() + 5}, false}};
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  const SampleChunk rest = outcome.chunks(0)[0];
  ASSERT_EQ(rest.token_ids.size(), 7u);

  std::vector<int32_t> tokens = request.prompt_ids;
  tokens.insert(tokens.end(), whole.token_ids.begin(), whole.token_ids.end());
  const Experts expected = Computed(tokens);
  EXPECT_EQ(rest.prompt_routed_experts, Experts(expected.begin(), expected.begin() + 37 * 4));
  ASSERT_EQ(rest.routed_experts.size(), 7u * 4u);
  EXPECT_TRUE(std::equal(rest.routed_experts.begin(), rest.routed_experts.end() - 4,
                         expected.begin() + 42 * 4));
}

TEST_F(RoutedExpertsTest, OfAnAbortedSampleAreFilledUp) {
  StartRandom({}, ExpertSpec());
  GenerationRequest request = Request(/*n=*/1, /*max_tokens=*/200);
  request.id = "aborted";
  Outcome outcome;
  SubmitAndPauseAt(request, 6, outcome);
  engine_->Abort({"aborted"}, /*all=*/false, [](int64_t) {});
  ASSERT_TRUE(outcome.Wait());
  Experts experts;
  for (const SampleChunk& chunk : outcome.chunks(0)) {
    experts.insert(experts.end(), chunk.routed_experts.begin(), chunk.routed_experts.end());
  }
  EXPECT_EQ(experts.size(), outcome.sample().token_ids.size() * 4);
  EXPECT_EQ(experts.back(), model::kUnknownExpert);
}

TEST_F(RoutedExpertsTest, AreRefusedWhereTheModelHasNone) {
  StartRandom({});
  EXPECT_THAT(
      engine_->Submit(Request(1), {}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("return_routed_experts"), HasSubstr("no layer with experts"))));
}

}  // namespace
}  // namespace tandem::rollout
