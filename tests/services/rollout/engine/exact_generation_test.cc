// What the engine says of the tokens that it samples is, bit for bit, what the trainer's forward
// pass says of them, whatever shares the batch and the cache; and a seed fixes a sample. Both
// compute on EXACT_DEVICE, the CPU or a GPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <tuple>

#include "common/model/numerics.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/services/rollout/engine/trainer_log_probs.h"
#include "tests/support/cuda_device.h"
#include "tests/support/shared_layers.h"
#include "tests/support/staged_weights.h"
#include "tests/support/unlike_layers.h"

namespace tandem::rollout {
namespace {

const at::Device kDevice(EXACT_DEVICE);

model::ModelSpec GroupedSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 700;
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.head_dim = 32;
    layer.attention.qk_norm.emplace();
  }
  return spec;
}

// Of the tokens from `first` on.
void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected,
                    size_t first, const char* what) {
  ASSERT_EQ(actual.size() + first, expected.size() + 1);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_EQ(std::memcmp(&actual[i], &expected[first - 1 + i], sizeof(float)), 0)
        << what << " of token " << i << ": " << actual[i] << ", the trainer's is "
        << expected[first - 1 + i];
  }
}

using Param = std::tuple<at::ScalarType, int>;  // and threads

class ExactGenerationTest : public EngineTest, public ::testing::WithParamInterface<Param> {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
    model::SetNumerics(model::Numerics::kExact);
    at::set_num_threads(std::get<1>(GetParam()));
  }
  void TearDown() override {
    engine_.reset();
    model::SetNumerics(model::Numerics::kFast);
  }

  EngineOptions Options() const { return {.dtype = std::get<0>(GetParam()), .device = kDevice}; }

  int64_t Draw(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }

  GenerationRequest RandomRequest() {
    GenerationRequest request;
    // One of a few beginnings, which the cache may hold, and an end of its own.
    request.prompt_ids = Prompt(Draw(1, 4) * 40, static_cast<int32_t>(Draw(0, 2)), 700);
    const auto end = Prompt(Draw(1, 30), static_cast<int32_t>(Draw(10, 1000)), 700);
    request.prompt_ids.insert(request.prompt_ids.end(), end.begin(), end.end());
    request.max_tokens = Draw(1, 40);
    request.n = static_cast<int32_t>(Draw(1, 4));
    request.seed = random_();
    request.filter.temperature = Draw(0, 2) == 0 ? 1.0 : 0.1 * static_cast<double>(Draw(5, 15));
    if (Draw(0, 1) == 0) request.filter.top_k = Draw(1, 100);
    if (Draw(0, 1) == 0) request.filter.top_p = 0.9;
    if (Draw(0, 3) == 0) request.filter.min_p = 0.02;
    return request;
  }

  void ExpectTrainersLogProbs(const GenerationRequest& request, const SampleChunk& sample) {
    std::vector<int32_t> tokens = request.prompt_ids;
    tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
    const auto arena = tandem::testing::PlainCopy(*engine_->weights().live());
    const size_t first = request.prompt_ids.size();
    ExpectSameBits(sample.logprobs, TrainerLogProbs(*model_, *arena, tokens, 1.0, kDevice), first,
                   "raw log-prob");
    ExpectSameBits(sample.processed_logprobs,
                   TrainerLogProbs(*model_, *arena, tokens, request.filter.temperature, kDevice),
                   first, "log-prob at the temperature");
  }

  // Many requests at once, some of which are preempted.
  void ExpectTrainersLogProbsOfMixedTraffic() {
    std::vector<GenerationRequest> requests;
    for (int i = 0; i < 40; ++i) requests.push_back(RandomRequest());
    std::vector<Outcome> outcomes(requests.size());
    SubmitTogether(requests, outcomes);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(outcomes[i].Wait());
      ASSERT_OK(outcomes[i].status());
      for (int32_t n = 0; n < requests[i].n; ++n) {
        ExpectTrainersLogProbs(requests[i], outcomes[i].sample(n));
        if (HasFatalFailure()) return;
      }
    }
    const SchedulerStats stats = engine_->Info().scheduler;
    EXPECT_GT(stats.num_preemptions, 0);
    EXPECT_GT(stats.num_cached_tokens, 0);
  }

  std::mt19937_64 random_{19};
};

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
  // Too small for all that run: some are preempted.
  options.kv_cache_bytes = (128 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
  StartRandom(options, GroupedSpec());
  ExpectTrainersLogProbsOfMixedTraffic();
}

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWithASlidingWindow) {
  for (const bool in_every_layer : {false, true}) {
    model::ModelSpec spec = GroupedSpec();
    spec.layers.back().attention.window = 40;
    if (in_every_layer) spec.layers.front().attention.window = 40;
    EngineOptions options = Options();
    options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
    // 32 blocks of one layer, or 16 of both: less than all that run need.
    options.kv_cache_bytes = (64 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
    StartRandom(options, spec);
    ExpectTrainersLogProbsOfMixedTraffic();
    if (HasFailure()) return;
  }
}

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWithExperts) {
  model::ModelSpec spec = GroupedSpec();
  for (model::LayerSpec& layer : spec.layers) {
    layer.experts = {.num_experts = 12,
                     .intermediate_size = 40,
                     .routing = {.top_k = 3, .score = model::RoutingSpec::Score::kSigmoid},
                     .shared_intermediate_size = 24};
  }
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
  options.kv_cache_bytes = (128 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
  StartRandom(options, spec);
  ExpectTrainersLogProbsOfMixedTraffic();
}

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWithLatentAttention) {
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
  options.kv_cache_bytes = (200 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
  StartRandom(options, LatentSmallSpec());
  ExpectTrainersLogProbsOfMixedTraffic();
}

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWithLayersThatDiffer) {
  model::ModelSpec spec = GroupedSpec();
  tandem::testing::MakeLayersUnlike(spec);
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
  options.kv_cache_bytes = (280 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
  StartRandom(options, spec);
  ExpectTrainersLogProbsOfMixedTraffic();
}

TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWhereLayersReadMoreThanTheStream) {
  model::ModelSpec spec = GroupedSpec();
  tandem::testing::ShareLayers(spec);
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};
  options.kv_cache_bytes = (200 << 10) * static_cast<int64_t>(c10::elementSize(options.dtype));
  StartRandom(options, spec);
  ExpectTrainersLogProbsOfMixedTraffic();
}

// Tokens with penalties are drawn on the CPU, also where a GPU computes.
TEST_P(ExactGenerationTest, LogProbsAreTheTrainersWithPenalties) {
  StartRandom(Options(), GroupedSpec());
  for (int i = 0; i < 4; ++i) {
    GenerationRequest request = RandomRequest();
    request.n = 1;
    request.filter = {};
    request.penalties.frequency = 0.5;
    request.penalties.logit_bias = {{5, 2.0f}, {7, -1.0f}};
    const SampleChunk sample = Generate(request);
    std::vector<int32_t> tokens = request.prompt_ids;
    tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
    const auto arena = tandem::testing::PlainCopy(*engine_->weights().live());
    ExpectSameBits(sample.logprobs, TrainerLogProbs(*model_, *arena, tokens, 1.0, kDevice),
                   request.prompt_ids.size(), "raw log-prob");
  }
}

TEST_P(ExactGenerationTest, ASeedFixesASampleWhateverElseRuns) {
  EngineOptions options = Options();
  options.scheduler = {.max_num_seqs = 64, .max_num_batched_tokens = 256};
  StartRandom(options, GroupedSpec());
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 64; ++i) {
    requests.push_back(RandomRequest());
    requests.back().n = 1;
  }
  std::vector<Outcome> together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) Submit(requests[i], together[i]);
  for (Outcome& outcome : together) ASSERT_TRUE(outcome.Wait());
  for (size_t i = 0; i < requests.size(); i += 5) {
    const SampleChunk alone = Generate(requests[i]);
    const SampleChunk crowded = together[i].sample();
    EXPECT_EQ(alone.token_ids, crowded.token_ids) << "request " << i;
    EXPECT_EQ(alone.logprobs, crowded.logprobs) << "request " << i;
    EXPECT_EQ(alone.processed_logprobs, crowded.processed_logprobs) << "request " << i;
  }
}

TEST_P(ExactGenerationTest, SamplesOfAGroupDiffer) {
  StartRandom(Options(), GroupedSpec());
  GenerationRequest request = RandomRequest();
  request.filter = {};
  request.max_tokens = 20;
  request.n = 16;
  Outcome outcome;
  Submit(request, outcome);
  ASSERT_TRUE(outcome.Wait());
  std::set<std::vector<int32_t>> different;
  for (int32_t n = 0; n < request.n; ++n) different.insert(outcome.sample(n).token_ids);
  EXPECT_EQ(different.size(), 16u);
}

TEST_P(ExactGenerationTest, ATurnThatComesBackComputesOnlyWhatIsNew) {
  StartRandom(Options(), GroupedSpec());
  GenerationRequest request = RandomRequest();
  request.prompt_ids = Prompt(37, 1, 700);
  request.n = 1;
  request.max_tokens = 9;
  for (int turn = 0; turn < 6; ++turn) {
    const SampleChunk sample = Generate(request);
    ExpectTrainersLogProbs(request, sample);
    const auto computed = static_cast<int64_t>(request.prompt_ids.size()) - 4;
    if (turn > 0) EXPECT_EQ(sample.num_cached_tokens, computed);
    request.prompt_ids.insert(request.prompt_ids.end(), sample.token_ids.begin(),
                              sample.token_ids.end());
    for (int32_t id : {7, 8, 9}) request.prompt_ids.push_back(id);
  }
}

TEST_P(ExactGenerationTest, APromptInTheCacheIsComputedAnewUnderNewWeights) {
  StartRandom(Options(), GroupedSpec());
  GenerationRequest request = RandomRequest();
  request.n = 1;
  request.max_tokens = 30;
  const SampleChunk before = Generate(request);
  const SampleChunk cached = Generate(request);
  EXPECT_GT(cached.num_cached_tokens, 0);
  EXPECT_EQ(cached.token_ids, before.token_ids);
  EXPECT_EQ(cached.logprobs, before.logprobs);

  CommitRandom(/*version=*/1, /*seed=*/2);
  const SampleChunk after = Generate(request);
  EXPECT_EQ(after.num_cached_tokens, 0);
  ExpectTrainersLogProbs(request, after);

  Start(Options(), GroupedSpec());
  CommitRandom(/*version=*/0, /*seed=*/2);
  const SampleChunk fresh = Generate(request);
  EXPECT_EQ(after.token_ids, fresh.token_ids);
  EXPECT_EQ(after.logprobs, fresh.logprobs);
  EXPECT_EQ(after.processed_logprobs, fresh.processed_logprobs);
  EXPECT_NE(after.logprobs, before.logprobs);
}

TEST_P(ExactGenerationTest, ScoresAreTheLogProbsOfGeneration) {
  StartRandom(Options(), GroupedSpec());
  GenerationRequest request = RandomRequest();
  request.n = 1;
  const SampleChunk sample = Generate(request);
  std::vector<int32_t> tokens = request.prompt_ids;
  tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
  ASSERT_OK_AND_ASSIGN(const ScoreResult score, Score({tokens, request.filter.temperature}));
  EXPECT_EQ(std::vector<float>(score.logprobs.begin() + request.prompt_ids.size() - 1,
                               score.logprobs.end()),
            sample.processed_logprobs);
}

INSTANTIATE_TEST_SUITE_P(Types, ExactGenerationTest,
                         ::testing::Combine(::testing::Values(at::kFloat, at::kBFloat16),
                                            ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) == at::kFloat ? "float32"
                                                                                    : "bfloat16") +
                                  "_" + std::to_string(std::get<1>(info.param)) + "_threads";
                         });

}  // namespace
}  // namespace tandem::rollout
