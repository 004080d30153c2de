// An engine whose model's layers cache keys and values of different sizes: its log-probs are those of
// the trainer, and its blocks are counted as what they take.
#include "tests/support/unlike_layers.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "services/rollout/engine/cache_size.h"
#include "tests/services/rollout/engine/mixed_traffic.h"

namespace tandem::rollout {
namespace {

model::ModelSpec UnlikeSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 700;
  tandem::testing::MakeLayersUnlike(spec);
  return spec;
}

class UnlikeLayersTest : public MixedTrafficTest {};

TEST_F(UnlikeLayersTest, BlocksTakeWhatTheirLayersDo) {
  const model::Transformer model(UnlikeSpec());
  EngineOptions options;
  options.kv_cache_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const CacheSize size, SizeCache(options, model));
  // A block holds the two layers with 2 key-value heads of 12 and 16 elements, or one with 3 of 16 and 32.
  const int64_t of_block = std::max(2 * 2 * (12 + 16), 3 * (16 + 32)) * 4 * options.block_size;
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(size.cache), of_block);
  EXPECT_EQ(size.cache.num_blocks, options.kv_cache_bytes / of_block);
  EXPECT_THAT(model::GroupLayers(size.cache.windows, size.cache.sizes).windows,
              ::testing::ElementsAre(0, 20, 20));
}

TEST_F(UnlikeLayersTest, OnAGpuABlockHoldsAllLayers) {
  const model::Transformer model(UnlikeSpec());
  EngineOptions options;
  options.kv_cache_bytes = 1 << 20;
  options.device = at::Device(at::kCUDA, 0);
  ASSERT_OK_AND_ASSIGN(const CacheSize size, SizeCache(options, model));
  const int64_t of_block = 2 * (2 * (12 + 12) + 3 * (16 + 20)) * 4 * options.block_size;
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(size.cache), of_block);
  EXPECT_EQ(size.cache.num_blocks, options.kv_cache_bytes / of_block);
  EXPECT_THAT(model::GroupLayers(size.cache.windows, size.cache.sizes).windows,
              ::testing::ElementsAre(0));
}

TEST_F(UnlikeLayersTest, LatentsAreRefused) {
  model::ModelSpec spec = LatentSmallSpec();
  spec.layers.back().attention = SmallSpec().layers.back().attention;
  EXPECT_THAT(SizeCache({}, model::Transformer(spec)).status(),
              testing::StatusIs(absl::StatusCode::kUnimplemented,
                                ::testing::HasSubstr("layer 0 has latent attention")));
}

TEST_F(UnlikeLayersTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  EngineOptions options;
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
  options.kv_cache_bytes = 90 * 144 * 4 * options.block_size;              // some are preempted
  StartRandom(options, UnlikeSpec());
  ExpectTrainersLogProbs();
}

TEST_F(UnlikeLayersTest, BlocksThatHaveLeftAWindowAreFree) {
  // What one sequence of 400 tokens holds at once, of 25 blocks at each position of three groups.
  ExpectToHold400Tokens(UnlikeSpec(), (25 + 2 * 4) * 144 * 4 * EngineOptions().block_size);
}

}  // namespace
}  // namespace tandem::rollout
