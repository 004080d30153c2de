// An engine caches latents in place of keys and values, except with exact numerics, and its log-probs
// are those of the trainer.
#include <gtest/gtest.h>

#include "common/model/numerics.h"
#include "services/rollout/engine/cache_size.h"
#include "tests/services/rollout/engine/mixed_traffic.h"

namespace tandem::rollout {
namespace {

class LatentCacheTest : public MixedTrafficTest {
 protected:
  void TearDown() override { model::SetNumerics(model::Numerics::kFast); }
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

TEST_F(LatentCacheTest, TakesTheSameOnAGpu) {
  const model::Transformer model(LatentSmallSpec());
  EngineOptions options;
  options.kv_cache_bytes = 1 << 20;
  options.device = at::Device(at::kCUDA, 0);
  ASSERT_OK_AND_ASSIGN(const CacheSize fast, SizeCache(options, model));
  EXPECT_TRUE(fast.cache.shared);
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(fast.cache),
            2 * fast.cache.block_size * (24 + 8) * 4);
  EXPECT_EQ(fast.cache.num_blocks,
            options.kv_cache_bytes / model::PagedKvCache::BytesPerBlock(fast.cache));
  model::SetNumerics(model::Numerics::kExact);
  ASSERT_OK_AND_ASSIGN(const CacheSize exact, SizeCache(options, model));
  EXPECT_FALSE(exact.cache.shared);
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(exact.cache),
            2 * exact.cache.block_size * 6 * (20 + 10) * 4);
}

TEST_F(LatentCacheTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  EngineOptions options;
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
  options.kv_cache_bytes = 40 * 2 * options.block_size * (24 + 8) * 4;     // some are preempted
  StartRandom(options, LatentSmallSpec());
  ExpectTrainersLogProbs();
}

}  // namespace
}  // namespace tandem::rollout
