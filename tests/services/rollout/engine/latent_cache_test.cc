// An engine caches latents in place of keys and values, except with exact numerics, and its log-probs
// are those of the trainer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "common/model/numerics.h"
#include "services/rollout/engine/cache_size.h"
#include "tests/services/rollout/engine/engine_fixture.h"
#include "tests/services/rollout/engine/trainer_log_probs.h"
#include "tests/support/staged_weights.h"

namespace tandem::rollout {
namespace {

class LatentCacheTest : public EngineTest {
 protected:
  void TearDown() override { model::SetNumerics(model::Numerics::kFast); }

  std::vector<float> TrainersLogProbs(const std::vector<int32_t>& tokens) {
    return TrainerLogProbs(*model_, *tandem::testing::PlainCopy(*engine_->weights().live()),
                           tokens);
  }
};

TEST_F(LatentCacheTest, HoldsLatentsExceptWithExactNumerics) {
  const model::Transformer model(LatentSmallSpec());
  ASSERT_OK_AND_ASSIGN(const CacheSize fast, SizeCache({}, model));
  EXPECT_TRUE(fast.cache.shared);
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(fast.cache),
            2 * fast.cache.block_size * (24 + 8) * 4);
  model::SetNumerics(model::Numerics::kExact);
  ASSERT_OK_AND_ASSIGN(const CacheSize exact, SizeCache({}, model));
  EXPECT_FALSE(exact.cache.shared);
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(exact.cache),
            2 * exact.cache.block_size * 6 * (20 + 16) * 4);
}

TEST_F(LatentCacheTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  EngineOptions options;
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
  options.kv_cache_bytes = 40 * 2 * options.block_size * (24 + 8) * 4;     // some are preempted
  StartRandom(options, LatentSmallSpec());
  std::vector<GenerationRequest> requests(24);
  std::vector<Outcome> outcomes(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt_ids = Prompt(40 + 5 * static_cast<int64_t>(i % 7), i % 3, 700);
    requests[i].max_tokens = 30;
    requests[i].n = 2;
    requests[i].seed = i;
  }
  SubmitTogether(requests, outcomes);
  double largest = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(outcomes[i].Wait());
    ASSERT_OK(outcomes[i].status());
    for (int32_t n = 0; n < 2; ++n) {
      const SampleChunk sample = outcomes[i].sample(n);
      std::vector<int32_t> tokens = requests[i].prompt_ids;
      tokens.insert(tokens.end(), sample.token_ids.begin(), sample.token_ids.end());
      const at::Tensor expected = at::tensor(TrainersLogProbs(tokens));
      const at::Tensor found = at::tensor(sample.logprobs);
      const auto first = static_cast<int64_t>(requests[i].prompt_ids.size()) - 1;
      const at::Tensor difference = (found - expected.narrow(0, first, found.numel())).abs();
      largest = std::max(largest, difference.max().item<double>());
    }
  }
  EXPECT_LT(largest, 1e-4);
  EXPECT_GT(engine_->Info().scheduler.num_preemptions, 0);
  EXPECT_GT(engine_->Info().scheduler.num_cached_tokens, 0);
}

}  // namespace
}  // namespace tandem::rollout
