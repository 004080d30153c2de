// A model with linear attention keeps a state of each running sequence: its log-probs are the trainer's
// bit for bit, whatever shares the batch, through chunks of prompts, preemptions, several samples of a
// prompt and released memory; and no prompt is read from the prefix cache. On EXACT_DEVICE, the CPU or a
// GPU.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/model/numerics.h"
#include "services/rollout/engine/cache_size.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/services/rollout/engine/trainer_log_probs.h"
#include "tests/support/cuda_device.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

const at::Device kDevice(EXACT_DEVICE);

class LinearAttentionTest : public EngineTest {
 protected:
  void SetUp() override {
    if (kDevice.is_cuda()) TANDEM_SKIP_WITHOUT_CUDA();
    model::SetNumerics(model::Numerics::kExact);
  }
  void TearDown() override {
    engine_.reset();
    model::SetNumerics(model::Numerics::kFast);
  }

  std::vector<float> TrainersLogProbs(const std::vector<int32_t>& tokens) {
    return TrainerLogProbs(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()), tokens,
                           1.0, kDevice);
  }

  void ExpectTrainersBits(const std::vector<int32_t>& prompt, const SampleChunk& sample) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
    const std::vector<float> expected = TrainersLogProbs(tokens);
    ASSERT_EQ(sample.logprobs.size() + prompt.size(), expected.size() + 1);
    EXPECT_EQ(std::memcmp(sample.logprobs.data(), expected.data() + prompt.size() - 1,
                          sample.logprobs.size() * sizeof(float)),
              0);
  }
};

TEST_F(LinearAttentionTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    EngineOptions options;
    options.dtype = dtype;
    options.device = kDevice;
    options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
    // One layer's blocks; some sequences are preempted. A CPU pads values.
    options.kv_cache_bytes = 40 * options.block_size * 2 * (12 + (kDevice.is_cpu() ? 16 : 12)) *
                             (dtype == at::kFloat ? 4 : 2);
    StartRandom(options, LinearSmallSpec());
    std::vector<GenerationRequest> requests(16);
    std::vector<Outcome> outcomes(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      // Prompts that begin alike, or are equal.
      requests[i].prompt_ids = Prompt(40 + 5 * static_cast<int64_t>(i % 7), i % 3, 700);
      requests[i].max_tokens = 30;
      requests[i].n = 1 + static_cast<int32_t>(i % 4);
      requests[i].seed = i;
    }
    SubmitTogether(requests, outcomes);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(outcomes[i].Wait());
      ASSERT_OK(outcomes[i].status());
      for (int32_t n = 0; n < requests[i].n; ++n) {
        ExpectTrainersBits(requests[i].prompt_ids, outcomes[i].sample(n));
      }
    }
    EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
    EXPECT_EQ(engine_->Info().scheduler.num_cached_tokens, 0);
  }
}

TEST_F(LinearAttentionTest, ASequenceBeginsAgainAfterItsStateIsReleased) {
  StartRandom({.device = kDevice}, LinearSmallSpec());
  GenerationRequest request;
  request.prompt_ids = Prompt(50, 1, 700);
  request.max_tokens = 20;
  request.seed = 3;
  const SampleChunk expected = Generate(request);
  Outcome outcome;
  SubmitAndPauseAt(request, 7, outcome, {.kv_cache = true});
  engine_->Resume([] {});
  ASSERT_TRUE(outcome.Wait());
  ASSERT_OK(outcome.status());
  EXPECT_EQ(outcome.sample().token_ids, expected.token_ids);
  ExpectTrainersBits(request.prompt_ids, outcome.sample());
}

TEST_F(LinearAttentionTest, ItsLayersHaveStatesInPlaceOfBlocks) {
  if (kDevice.is_cuda()) GTEST_SKIP() << "counts what a CPU takes";
  EngineOptions options;
  options.scheduler.max_num_seqs = 5;
  const model::Transformer model(LinearSmallSpec());
  ASSERT_OK_AND_ASSIGN(const CacheSize size, SizeCache(options, model));
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(size.cache), options.block_size * 2 * (12 + 16) * 4);
  EXPECT_EQ(size.cache.states.count, 5);
  // States of 4 heads with 12 keys and 20 values, padded to 32; three tokens' inputs of q, k and v.
  EXPECT_EQ(model::RecurrentStates::BytesPerSequence(size.cache.states),
            2 * (4 * 12 * 32 * 4 + 3 * (2 * 24 + 80) * 4));
}

}  // namespace
}  // namespace tandem::rollout
