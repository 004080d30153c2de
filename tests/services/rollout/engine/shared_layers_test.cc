// An engine whose model's last layers read the keys and values of others, and whose layers have inputs of
// their own: its log-probs are those of the trainer, and its cache is that of the layers that have keys.
#include "tests/support/shared_layers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "services/rollout/engine/cache_size.h"
#include "tests/services/rollout/engine/mixed_traffic.h"

namespace tandem::rollout {
namespace {

model::ModelSpec SharedSpec() {
  model::ModelSpec spec = SmallSpec();
  spec.vocab_size = 700;
  tandem::testing::ShareLayers(spec);
  return spec;
}

// Of a block: two layers of 2 key-value heads with 12 and 16 elements, or one with 24 and 32.
constexpr int64_t kTokenBytes = 2 * 2 * (12 + 16) * 4;
static_assert(kTokenBytes == 2 * (24 + 32) * 4);

class SharedLayersTest : public MixedTrafficTest {};

TEST_F(SharedLayersTest, TheCacheIsThatOfTheLayersWithKeys) {
  const model::Transformer model(SharedSpec());
  EngineOptions options;
  options.kv_cache_bytes = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const CacheSize size, SizeCache(options, model));
  EXPECT_EQ(model::PagedKvCache::BytesPerBlock(size.cache), kTokenBytes * options.block_size);
  EXPECT_EQ(size.cache.num_blocks, options.kv_cache_bytes / (kTokenBytes * options.block_size));
  model::ModelSpec without = SharedSpec();
  without.layers.resize(3);
  without.layer_inputs.reset();
  for (model::LayerSpec& layer : without.layers) layer.input_gate.reset();
  ASSERT_OK_AND_ASSIGN(const CacheSize expected, SizeCache(options, model::Transformer(without)));
  EXPECT_EQ(size.cache.num_blocks, expected.cache.num_blocks);
}

TEST_F(SharedLayersTest, LogProbsAreTheTrainersUnderMixedTraffic) {
  EngineOptions options;
  options.scheduler = {.max_num_seqs = 12, .max_num_batched_tokens = 48};  // prompts in chunks
  options.kv_cache_bytes = 60 * kTokenBytes * options.block_size;          // some are preempted
  StartRandom(options, SharedSpec());
  ExpectTrainersLogProbs();
}

TEST_F(SharedLayersTest, BlocksThatHaveLeftTheWindowAreFree) {
  // What one sequence of 400 tokens holds at once, of 25 blocks at each position of two groups.
  ExpectToHold400Tokens(SharedSpec(), (25 + 4) * kTokenBytes * EngineOptions().block_size);
}

}  // namespace
}  // namespace tandem::rollout
