// An engine on a GPU, against the same engine on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/support/cuda_device.h"
#include "tests/support/unlike_layers.h"

namespace tandem::rollout {
namespace {

class CudaEngineTest : public EngineTest {
 protected:
  void SetUp() override { TANDEM_SKIP_WITHOUT_CUDA(); }

  static EngineOptions OnGpu(bool graphs = true) {
    EngineOptions options;
    options.device = at::Device(at::kCUDA, 0);
    options.forward.graphs = graphs;
    return options;
  }

  // Many at once, of several lengths, so that prompts are computed beside sequences that decode.
  std::vector<std::vector<int32_t>> Continuations(int count = 20) {
    std::vector<std::unique_ptr<Outcome>> outcomes;
    for (int i = 0; i < count; ++i) {
      outcomes.push_back(std::make_unique<Outcome>());
      GenerationRequest request = Greedy(Prompt(3 + 11 * (i % 7), i), 10 + 5 * (i % 5));
      request.ignore_eos = true;
      Submit(request, *outcomes.back());
    }
    std::vector<std::vector<int32_t>> tokens;
    for (const auto& outcome : outcomes) {
      EXPECT_TRUE(outcome->Wait());
      EXPECT_OK(outcome->status());
      tokens.push_back(outcome->sample().token_ids);
    }
    return tokens;
  }
};

// head_dim 64, in groups of 7.
model::ModelSpec QwenLikeSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.hidden_size = 128;
  for (model::LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate_size = 256;
    layer.attention.num_heads = 14;
    layer.attention.num_kv_heads = 2;
    layer.attention.head_dim = 64;
  }
  return spec;
}

// A latent of 64 elements and 16 that rotate, which 20 heads share.
model::ModelSpec DeepSeekLikeSpec() {
  model::ModelSpec spec = LatentSmallSpec();
  spec.hidden_size = 128;
  spec.ropes.front().rotary_dim = 16;
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_heads = layer.attention.num_kv_heads = 20;
    layer.attention.head_dim = 40;
    layer.attention.v_head_dim = 24;
    layer.attention.latent = model::LatentSpec{.q_rank = 20, .kv_rank = 64, .rope_dim = 16};
  }
  return spec;
}

model::ModelSpec UnlikeSpec() {
  model::ModelSpec spec = SmallSpec();
  tandem::testing::MakeLayersUnlike(spec);
  return spec;
}

TEST_F(CudaEngineTest, GreedyTokensInFloat32AreTheCpus) {
  for (const model::ModelSpec& spec :
       {SmallSpec(), QwenLikeSpec(), LinearSmallSpec(), DeepSeekLikeSpec(), UnlikeSpec()}) {
    StartRandom({}, spec);
    const auto expected = Continuations();
    for (const bool graphs : {false, true}) {
      StartRandom(OnGpu(graphs), spec);
      EXPECT_EQ(Continuations(), expected) << (graphs ? "with" : "without") << " graphs";
    }
  }
}

TEST_F(CudaEngineTest, InBfloat16GraphsGiveWhatTheStepsGive) {
  for (const model::ModelSpec& spec : {QwenLikeSpec(), LinearSmallSpec(), DeepSeekLikeSpec()}) {
    EngineOptions options = OnGpu(/*graphs=*/false);
    options.dtype = at::kBFloat16;
    // One at a time: then a graph has the rows of the step.
    StartRandom(options, spec);
    std::vector<SampleChunk> expected;
    for (int i = 0; i < 5; ++i) expected.push_back(Generate(Greedy(Prompt(20, i), 40)));
    options.forward.graphs = true;
    StartRandom(options, spec);
    for (int i = 0; i < 5; ++i) {
      const SampleChunk found = Generate(Greedy(Prompt(20, i), 40));
      EXPECT_EQ(found.token_ids, expected[i].token_ids);
      EXPECT_THAT(found.logprobs,
                  ::testing::Pointwise(::testing::FloatNear(1e-3), expected[i].logprobs));
    }
  }
}

// A dense layer and two with experts, one of which has everything that a router can have.
model::ModelSpec ExpertsSpec() {
  model::ModelSpec spec = QwenLikeSpec();
  spec.layers.push_back(spec.layers[0]);
  spec.layers.push_back(spec.layers[0]);
  spec.layers[1].experts = {
      .num_experts = 24, .intermediate_size = 64, .routing = {.top_k = 4, .normalize = true}};
  spec.layers[2].experts = {.num_experts = 24,
                            .intermediate_size = 72,
                            .routing = {.top_k = 4,
                                        .normalize = true,
                                        .score = model::RoutingSpec::Score::kSigmoid,
                                        .bias = true,
                                        .correction_bias = true,
                                        .num_groups = 4,
                                        .top_groups = 2,
                                        .scale = 2.5},
                            .activation = model::Activation::kClampedSwiglu,
                            .bias = true,
                            .shared_intermediate_size = 40};
  return spec;
}

TEST_F(CudaEngineTest, WithExpertsGreedyTokensInFloat32AreTheCpus) {
  GenerationRequest recorded = Greedy(Prompt(37), 12);
  recorded.return_routed_experts = true;
  StartRandom({}, ExpertsSpec());
  const auto expected = Continuations();
  const SampleChunk sample = Generate(recorded);
  for (const bool graphs : {false, true}) {
    StartRandom(OnGpu(graphs), ExpertsSpec());
    EXPECT_EQ(Continuations(), expected) << (graphs ? "with" : "without") << " graphs";
    // Graphs that record, after those that did not.
    const SampleChunk found = Generate(recorded);
    EXPECT_EQ(found.token_ids, sample.token_ids);
    EXPECT_EQ(found.prompt_routed_experts, sample.prompt_routed_experts);
    EXPECT_EQ(found.routed_experts, sample.routed_experts);
    EXPECT_EQ(Continuations(6).size(), 6u);
  }
}

TEST_F(CudaEngineTest, WithExpertsInBfloat16GraphsGiveWhatTheStepsGive) {
  EngineOptions options = OnGpu(/*graphs=*/false);
  options.dtype = at::kBFloat16;
  StartRandom(options, ExpertsSpec());
  std::vector<SampleChunk> expected;
  for (int i = 0; i < 5; ++i) expected.push_back(Generate(Greedy(Prompt(20, i), 40)));
  options.forward.graphs = true;
  StartRandom(options, ExpertsSpec());
  for (int i = 0; i < 5; ++i) {
    const SampleChunk found = Generate(Greedy(Prompt(20, i), 40));
    EXPECT_EQ(found.token_ids, expected[i].token_ids);
    EXPECT_THAT(found.logprobs,
                ::testing::Pointwise(::testing::FloatNear(1e-3), expected[i].logprobs));
  }
}

TEST_F(CudaEngineTest, BlocksThatRunOutAndGroupsThatForkChangeNothing) {
  GenerationRequest group = Greedy(Prompt(40), 30);
  group.n = 4;
  group.filter.temperature = 1.0;
  group.seed = 5;
  group.ignore_eos = true;
  const auto samples = [&] {
    Outcome outcome;
    Submit(group, outcome);
    EXPECT_TRUE(outcome.Wait());
    EXPECT_OK(outcome.status());
    std::vector<std::vector<int32_t>> tokens;
    for (int32_t i = 0; i < 4; ++i) tokens.push_back(outcome.sample(i).token_ids);
    return tokens;
  };
  StartRandom({});
  const auto expected = Continuations();
  const auto expected_samples = samples();
  EngineOptions options = OnGpu();
  // 12 blocks of 16 tokens: 2 layers, keys and values, 2 heads of 12.
  options.kv_cache_bytes = 12 * 2 * 2 * 2 * 12 * 16 * 4;
  options.scheduler.max_num_batched_tokens = 24;
  StartRandom(options);
  EXPECT_EQ(Continuations(), expected);
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
  EXPECT_EQ(samples(), expected_samples);
}

TEST_F(CudaEngineTest, BlocksOfLatentsThatRunOutAreComputedAgain) {
  StartRandom({}, DeepSeekLikeSpec());
  const auto expected = Continuations();
  EngineOptions options = OnGpu();
  options.kv_cache_bytes = 12 * 2 * (64 + 16) * 16 * 4;  // 12 blocks of 16 tokens in 2 layers
  options.scheduler.max_num_batched_tokens = 24;
  StartRandom(options, DeepSeekLikeSpec());
  EXPECT_EQ(Continuations(), expected);
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
}

TEST_F(CudaEngineTest, WeightsAreUpdatedUnderTheGraphs) {
  StartRandom({});
  std::vector<std::vector<std::vector<int32_t>>> expected;
  for (const int64_t version : {1, 2, 3}) {
    CommitRandom(version, /*seed=*/version);
    expected.push_back(Continuations(6));
  }
  EXPECT_NE(expected[0], expected[1]);
  StartRandom(OnGpu());
  for (const int64_t version : {1, 2, 3}) {
    CommitRandom(version, /*seed=*/version);
    EXPECT_EQ(Continuations(6), expected[version - 1]) << "version " << version;
  }
}

TEST_F(CudaEngineTest, GoesOnAfterItsMemoryWasReleased) {
  for (const model::ModelSpec& spec : {SmallSpec(), LinearSmallSpec()}) {
    StartRandom(OnGpu(), spec);
    const auto expected = Continuations(6);
    absl::Notification paused, resumed;
    engine_->Pause(PauseMode::kKeep, {.kv_cache = true, .weights = true},
                   [&](int64_t) { paused.Notify(); });
    ASSERT_TRUE(paused.WaitForNotificationWithTimeout(kPatience));
    engine_->Resume([&] { resumed.Notify(); });
    ASSERT_TRUE(resumed.WaitForNotificationWithTimeout(kPatience));
    CommitRandom(/*version=*/0, /*seed=*/1);
    EXPECT_EQ(Continuations(6), expected);
  }
}

TEST_F(CudaEngineTest, ScoresAndTopLogProbsAreTheCpus) {
  const ScoreRequest score{.token_ids = Prompt(90), .num_top_logprobs = 3};
  GenerationRequest request = Greedy(Prompt(30), 12);
  request.num_top_logprobs = 4;
  StartRandom({});
  ASSERT_OK_AND_ASSIGN(const ScoreResult expected, Score(score));
  const SampleChunk expected_sample = Generate(request);
  StartRandom(OnGpu());
  ASSERT_OK_AND_ASSIGN(const ScoreResult found, Score(score));
  EXPECT_THAT(found.logprobs, ::testing::Pointwise(::testing::FloatNear(1e-4), expected.logprobs));
  ASSERT_EQ(found.top_logprobs.size(), expected.top_logprobs.size());
  for (size_t i = 0; i < found.top_logprobs.size(); ++i) {
    ASSERT_EQ(found.top_logprobs[i].size(), 3u);
    EXPECT_EQ(found.top_logprobs[i].front().id, expected.top_logprobs[i].front().id);
  }
  const SampleChunk sample = Generate(request);
  EXPECT_EQ(sample.token_ids, expected_sample.token_ids);
  EXPECT_THAT(sample.logprobs,
              ::testing::Pointwise(::testing::FloatNear(1e-4), expected_sample.logprobs));
}

}  // namespace
}  // namespace tandem::rollout
