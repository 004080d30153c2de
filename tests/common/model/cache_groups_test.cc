#include "common/model/cache_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tandem::model {
namespace {

using ::testing::ElementsAre;

TEST(CacheGroups, AModelWithoutWindowsHasOneGroup) {
  const CacheGroups groups = GroupLayers({0, 0, 0});
  EXPECT_EQ(groups.layers_per_block, 3);
  EXPECT_THAT(groups.windows, ElementsAre(0));
  EXPECT_THAT(groups.layers,
              ElementsAre(LayerCachePlace{0, 0}, LayerCachePlace{0, 1}, LayerCachePlace{0, 2}));
}

TEST(CacheGroups, LayersOfOneWindowShareBlocks) {
  const CacheGroups groups = GroupLayers({8, 0, 8, 0});
  EXPECT_EQ(groups.layers_per_block, 2);
  EXPECT_THAT(groups.windows, ElementsAre(0, 8));
  EXPECT_THAT(groups.layers, ElementsAre(LayerCachePlace{1, 0}, LayerCachePlace{0, 0},
                                         LayerCachePlace{1, 1}, LayerCachePlace{0, 1}));
}

TEST(CacheGroups, OfUnequalSizesAreSplitSoThatBlocksHaveFewUnusedPlaces) {
  const CacheGroups groups = GroupLayers({0, 8, 8, 8});
  EXPECT_EQ(groups.layers_per_block, 1);
  EXPECT_THAT(groups.windows, ElementsAre(0, 8, 8, 8));
  EXPECT_THAT(groups.layers, ElementsAre(LayerCachePlace{0, 0}, LayerCachePlace{1, 0},
                                         LayerCachePlace{2, 0}, LayerCachePlace{3, 0}));
  // A group for each of 28 layers would be too many.
  std::vector<Window> windows(28, 8);
  windows.front() = 0;
  EXPECT_EQ(GroupLayers(windows).num_groups(), 8);
  EXPECT_EQ(GroupLayers(windows).layers_per_block, 4);
}

TEST(CacheGroups, ABlockHoldsMoreLayersOfAGroupWithSmallOnes) {
  const CacheGroups groups = GroupLayers({0, 8, 8, 8, 0, 0}, {1, 2, 2, 2, 1, 1});
  EXPECT_EQ(groups.size, 2);
  EXPECT_EQ(groups.layers_per_block, 2);
  EXPECT_THAT(groups.windows, ElementsAre(0, 0, 8, 8, 8));
  EXPECT_THAT(groups.layers,
              ElementsAre(LayerCachePlace{0, 0}, LayerCachePlace{2, 0}, LayerCachePlace{3, 0},
                          LayerCachePlace{4, 0}, LayerCachePlace{0, 1}, LayerCachePlace{1, 0}));
  // MiMo-V2-Flash's layers: a block of nine or ten small ones leaves the least unused.
  std::vector<Window> windows;
  std::vector<int64_t> sizes;
  for (int i = 0; i < 48; ++i) {
    const bool full = i == 0 || (i + 1) % 6 == 0;
    windows.push_back(full ? 0 : 129);
    sizes.push_back(full ? 4 : 8);
  }
  const CacheGroups mimo = GroupLayers(windows, sizes);
  EXPECT_EQ(mimo.size, 40);
  EXPECT_EQ(std::count(mimo.windows.begin(), mimo.windows.end(), Window(0)), 1);
  EXPECT_EQ(mimo.num_groups(), 9);
}

TEST(CacheGroups, LayersOfOneSizeAreGroupedAsThoseWithout) {
  const std::vector<Window> windows = {0, 8, kNoCache, 8, {8, true}, 8};
  const CacheGroups plain = GroupLayers(windows);
  const CacheGroups sized = GroupLayers(windows, {6, 6, 0, 6, 6, 6});
  EXPECT_EQ(sized.layers, plain.layers);
  EXPECT_EQ(sized.windows, plain.windows);
  EXPECT_EQ(sized.layers_per_block, plain.layers_per_block);
  EXPECT_EQ(sized.size, 6 * plain.size);
}

TEST(CacheGroups, LayersOfDifferentSizesWithOneWindowAreGroupsOfTheirOwn) {
  const CacheGroups groups = GroupLayers({0, 0, 0, 0}, {4, 5, 4, 5});
  EXPECT_THAT(groups.windows, ElementsAre(0, 0));
  EXPECT_EQ(groups.size, 10);
  EXPECT_EQ(groups.layers[1], (LayerCachePlace{1, 0}));
  EXPECT_EQ(groups.layers[2], (LayerCachePlace{0, 1}));
}

TEST(CacheGroups, ABlockIsInUseWhileATokenOfItIsSeen) {
  EXPECT_EQ(FirstBlockInUse(/*window=*/0, /*position=*/1000, /*block_size=*/16), 0);
  EXPECT_EQ(FirstBlockInUse(8, 0, 16), 0);
  EXPECT_EQ(FirstBlockInUse(8, 22, 16), 0) << "token 22 sees token 15";
  EXPECT_EQ(FirstBlockInUse(8, 23, 16), 1);
  EXPECT_EQ(FirstBlockInUse(1, 32, 16), 2);
}

TEST(CacheGroups, ABlockIsInUseWhileAChunkOfItsTokensIs) {
  const Window chunks{40, /*in_chunks=*/true};
  EXPECT_EQ(FirstBlockInUse(chunks, 39, 16), 0);
  EXPECT_EQ(FirstBlockInUse(chunks, 40, 16), 2) << "the second chunk begins within a block";
  EXPECT_EQ(FirstBlockInUse(chunks, 79, 16), 2);
  EXPECT_EQ(FirstBlockInUse(chunks, 80, 16), 5);
}

TEST(CacheGroups, ChunksAndWindowsOfOneSizeAreGroupsOfTheirOwn) {
  const CacheGroups groups = GroupLayers({{8, true}, 8, {8, true}, 8, 0, 0});
  EXPECT_THAT(groups.windows, ElementsAre(0, 8, Window(8, true)));
  EXPECT_EQ(groups.layers_per_block, 2);
  EXPECT_EQ(groups.layers[2], (LayerCachePlace{2, 1}));
}

TEST(CacheGroups, NoSequenceHoldsMoreBlocksThanPredicted) {
  constexpr int64_t kTokens = 200;
  std::vector<Window> windows;
  for (const int64_t size : {1, 5, 16, 17, 40, 48, 500}) {
    windows.push_back(size);
    windows.push_back({size, /*in_chunks=*/true});
  }
  for (const Window& window : windows) {
    for (const int64_t step : {1, 3, 16, 50}) {
      int64_t held = 0;
      for (int64_t computed = 0; computed < kTokens; ++computed) {
        const int64_t end = std::min(kTokens, computed + step);
        held = std::max(held, (end + 15) / 16 - FirstBlockInUse(window, computed, 16));
      }
      const int64_t predicted = MaxBlocksAtOnce({window}, kTokens, step, 16);
      EXPECT_LE(held, predicted) << window.size << " " << window.chunked << " " << step;
      EXPECT_GE(held, predicted - 1) << window.size << " " << window.chunked << " " << step;
    }
  }
  EXPECT_EQ(MaxBlocksAtOnce({0}, 33, 4096, 16), 3);
  EXPECT_EQ(MaxBlocksAtOnce({0, 16}, 1600, 1, 16), 100 + 2);
}

TEST(CacheGroups, TheUnusedPlacesOfBlocksCountAsMemory) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  spec.layers.assign(28, layer);
  const int64_t full = ModelCacheElementsPerToken(spec, 1, /*on_gpu=*/false);
  EXPECT_EQ(full, 28 * 2 * (16 + 16));
  for (size_t i = 1; i < spec.layers.size(); ++i) spec.layers[i].attention.window = 8;
  EXPECT_EQ(ModelCacheElementsPerToken(spec, 1, /*on_gpu=*/false), full / 28 * 8 * 4);
}

TEST(CacheGroups, TheRankWithTheMostHeadsSaysWhatALayerTakes) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention = {.num_heads = 12, .num_kv_heads = 3, .head_dim = 24, .v_head_dim = 8};
  spec.layers.assign(2, layer);
  spec.layers[1].attention.num_kv_heads = 6;
  spec.layers[1].attention.window = 8;
  EXPECT_THAT(CacheSizes(spec, 1, /*on_gpu=*/false), ElementsAre(3 * (24 + 16), 6 * (24 + 16)));
  EXPECT_THAT(CacheSizes(spec, 2, /*on_gpu=*/false), ElementsAre(2 * (24 + 16), 3 * (24 + 16)));
  EXPECT_EQ(ModelCacheElementsPerToken(spec, 2, /*on_gpu=*/false), 2 * 3 * (24 + 16));
}

TEST(CacheGroups, LayersWithLinearAttentionHaveNoBlocks) {
  const CacheGroups groups = GroupLayers({kNoCache, 0, kNoCache, 0});
  EXPECT_EQ(groups.layers_per_block, 2);
  EXPECT_EQ(groups.num_groups(), 1);
  EXPECT_EQ(groups.layers[1], (LayerCachePlace{0, 0}));
  EXPECT_EQ(groups.layers[3], (LayerCachePlace{0, 1}));

  ModelSpec spec;
  LayerSpec layer;
  layer.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 16};
  spec.layers.assign(4, layer);
  for (const int i : {0, 1, 2}) {
    spec.layers[i].attention.delta = DeltaSpec{.num_key_heads = 2, .num_value_heads = 4};
  }
  for (const bool on_gpu : {false, true}) {
    EXPECT_EQ(CacheWindows(spec, on_gpu), (std::vector<Window>{kNoCache, kNoCache, kNoCache, 0}));
    EXPECT_EQ(ModelCacheElementsPerToken(spec, 1, on_gpu), 2 * (16 + 16));
  }
}

TEST(CacheGroups, KeysAndValuesOfDifferentSizesCountAsTheyAre) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention = {.num_heads = 4, .num_kv_heads = 2, .head_dim = 24, .v_head_dim = 10};
  spec.layers.assign(3, layer);
  // Rows of values are padded to whole registers on a CPU.
  EXPECT_EQ(ModelCacheElementsPerToken(spec, 1, /*on_gpu=*/false), 3 * 2 * (24 + 16));
  EXPECT_EQ(ModelCacheElementsPerToken(spec, 1, /*on_gpu=*/true), 3 * 2 * (24 + 10));
  EXPECT_EQ(ModelCacheElementsPerToken(spec, 2, /*on_gpu=*/false), 3 * (24 + 16));
}

// DeepSeek-V3's sizes: 512 + 64 elements, whatever the number of heads and ranks.
TEST(CacheGroups, LatentsAreOneHeadOnEveryRank) {
  ModelSpec spec;
  LayerSpec layer;
  layer.attention = {.num_heads = 128,
                     .num_kv_heads = 128,
                     .head_dim = 192,
                     .v_head_dim = 128,
                     .latent = LatentSpec{.q_rank = 1536, .kv_rank = 512, .rope_dim = 64}};
  spec.layers.assign(61, layer);
  for (const int ranks : {1, 8}) {
    EXPECT_EQ(ModelCacheElementsPerToken(spec, ranks, /*on_gpu=*/false, LatentCache::kLatents),
              61 * 576);
    EXPECT_EQ(ModelCacheElementsPerToken(spec, ranks, /*on_gpu=*/false),
              61 * 128 / ranks * (192 + 128));
  }
  const CacheSpec cache = CacheOf(layer.attention, {3, 8}, LatentCache::kLatents);
  EXPECT_EQ(cache,
            (CacheSpec{.num_kv_heads = 1, .head_dim = 576, .v_head_dim = 512, .shared = true}));
}

}  // namespace
}  // namespace tandem::model
