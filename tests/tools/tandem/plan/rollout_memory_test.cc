#include "tools/tandem/plan/rollout_memory.h"

#include <gtest/gtest.h>

#include "common/config/load.h"
#include "common/config/summary.h"

namespace tandem::plan {
namespace {

constexpr int64_t kTokens = 64;
constexpr int64_t kElement = 4;  // bytes

model::ModelSpec ModelOfTwoLayers() {
  model::ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 512;
  spec.hidden_size = 64;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 128;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 16;
  spec.layers.assign(2, layer);
  return spec;
}

// Bytes of one engine step's tensors.
int64_t Temporaries(const model::ModelSpec& spec) {
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_FLOAT32);
  config.mutable_rollout()->set_max_num_batched_tokens(kTokens);
  return PredictRolloutMemory(config, spec, Hardware(), /*bucket_bytes=*/0).temporaries;
}

TEST(RolloutMemory, OfAStepIsThatOfTheLayersOwnMatrices) {
  model::ModelSpec spec = ModelOfTwoLayers();
  const int64_t gated = Temporaries(spec);
  // Gate, up and their product; without a gate, up and what the activation makes of it.
  for (model::LayerSpec& layer : spec.layers) layer.feed_forward.gated = false;
  EXPECT_EQ(gated - Temporaries(spec), kTokens * 128 * kElement);
}

TEST(RolloutMemory, HasAStateOfEachSequenceForLinearAttention) {
  model::ModelSpec spec = ModelOfTwoLayers();
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_BFLOAT16);
  config.mutable_rollout()->set_max_num_seqs(10);
  const RolloutMemory without = PredictRolloutMemory(config, spec, Hardware(), /*bucket_bytes=*/0);
  EXPECT_EQ(without.states, 0);
  spec.layers.front().attention.delta = model::DeltaSpec{
      .num_key_heads = 2, .num_value_heads = 4, .key_dim = 8, .value_dim = 20, .kernel_size = 4};
  const RolloutMemory with = PredictRolloutMemory(config, spec, Hardware(), /*bucket_bytes=*/0);
  // Rows of 20 values are padded to 32.
  EXPECT_EQ(with.states, 10 * (4 * 8 * 32 * 4 + 3 * (2 * 16 + 80) * 2));
  // One layer of two has blocks.
  EXPECT_GT(with.sequences, without.sequences);
}

TEST(RolloutMemory, OfLinearAttentionOnAGpuHasItsKernelsFloatsAndLeavesLessForTheCache) {
  model::ModelSpec spec = ModelOfTwoLayers();
  spec.layers.front().attention.delta = model::DeltaSpec{
      .num_key_heads = 16, .num_value_heads = 32, .key_dim = 64, .value_dim = 64, .kernel_size = 4};
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_BFLOAT16);
  config.mutable_rollout()->set_max_num_batched_tokens(kTokens);
  Hardware gpu;
  gpu.is_gpu = true;
  gpu.memory_bytes = int64_t{16} << 30;
  const auto predict = [&](const Hardware& hardware, int64_t sequences) {
    config.mutable_rollout()->set_max_num_seqs(sequences);
    return PredictRolloutMemory(config, spec, hardware, /*bucket_bytes=*/0);
  };
  // q, k, v, their gates and the results of a token.
  EXPECT_EQ(predict(gpu, 1).temporaries - predict(Hardware(), 1).temporaries,
            kTokens * (2 * 16 * 64 + 2 * 32 * 64 + 2 * 32) * 4);
  const RolloutMemory few = predict(gpu, 10);
  const RolloutMemory many = predict(gpu, 110);
  EXPECT_EQ(many.states, 11 * few.states);
  EXPECT_NEAR(static_cast<double>(few.kv_cache - many.kv_cache),
              static_cast<double>(many.states - few.states) / 2,
              static_cast<double>(many.temporaries - few.temporaries) + 1);
}

TEST(RolloutMemory, OnAGpuHasLatentsExceptWithExactNumerics) {
  model::ModelSpec spec = ModelOfTwoLayers();
  for (model::LayerSpec& layer : spec.layers) {
    layer.attention.num_kv_heads = 4;
    layer.attention.head_dim = 24;
    layer.attention.v_head_dim = 20;
    layer.attention.latent = model::LatentSpec{.kv_rank = 32, .rope_dim = 8};
  }
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_BFLOAT16);
  config.mutable_rollout()->set_kv_cache_megabytes(64);
  Hardware gpu;
  gpu.is_gpu = true;
  gpu.memory_bytes = int64_t{1} << 30;
  const int64_t block = config.rollout().block_size();
  const int64_t longest = config.data().max_prompt_length() + config::LongestCompletion(config);
  const auto expected = [&](int64_t elements) {  // of a token in a layer
    return (int64_t{64} << 20) / (2 * elements * 2 * block) / ((longest + block - 1) / block);
  };
  EXPECT_EQ(PredictRolloutMemory(config, spec, gpu, 0).sequences, expected(32 + 8));
  config.set_numerics(config::v1::NUMERICS_EXACT);
  EXPECT_EQ(PredictRolloutMemory(config, spec, gpu, 0).sequences, expected(4 * (24 + 20)));
}

TEST(RolloutMemory, OfAModelWithATowerHasItsCachesAndAStepOfIt) {
  model::ModelSpec spec = ModelOfTwoLayers();
  config::v1::RunConfig config = config::DefaultRunConfig();
  config.mutable_model()->set_dtype(config::v1::ELEMENT_TYPE_FLOAT32);
  config.mutable_rollout()->set_max_num_batched_tokens(kTokens);
  config.mutable_data()->set_max_prompt_length(100);
  const RolloutMemory without = PredictRolloutMemory(config, spec, Hardware(), /*bucket_bytes=*/0);
  EXPECT_EQ(without.images, 0);
  model::VisionSpec& tower = spec.vision.emplace();
  tower.patch_size = 4;
  tower.temporal_patch_size = tower.merge_size = 2;
  tower.hidden_size = 256;
  tower.layers = spec.layers;
  for (model::LayerSpec& layer : tower.layers) {
    layer.attention.num_kv_heads = 4;
    layer.attention.head_dim = 64;
    layer.feed_forward.intermediate_size = 1024;
  }
  const RolloutMemory with = PredictRolloutMemory(config, spec, Hardware(), /*bucket_bytes=*/0);
  EXPECT_EQ(with.images, int64_t{512} << 20);  // rows and pixels
  // A prompt may be one picture of 100 rows: at least the pixels of its 400 patches, the stream and
  // what it was made from, gate, up and their product.
  EXPECT_GT(with.temporaries, 400 * (96 + 2 * 256 + 3 * 1024) * kElement);
  // It grows with the step's share, where that is more than a prompt has.
  config.mutable_rollout()->set_max_num_batched_tokens(8 * kTokens);
  EXPECT_GT(PredictRolloutMemory(config, spec, Hardware(), 0).temporaries, with.temporaries);
  EXPECT_EQ(with.total() - without.total(),
            with.images + with.temporaries - without.temporaries + with.weights - without.weights);
  // A GPU keeps rows alone.
  EXPECT_EQ(PredictRolloutMemory(config, spec, {.is_gpu = true, .memory_bytes = int64_t{1} << 36},
                                 /*bucket_bytes=*/0)
                .images,
            int64_t{256} << 20);
}

TEST(RolloutMemory, OfAStepCountsTheExpertsThatATokenReaches) {
  model::ModelSpec spec = ModelOfTwoLayers();
  const int64_t dense = Temporaries(spec);
  model::ExpertSpec experts;
  experts.num_experts = 8;
  experts.intermediate_size = 32;
  experts.routing.top_k = 2;
  experts.shared_intermediate_size = 16;
  spec.layers.back().experts = experts;
  const int64_t of_experts = 2 * (2 * 64 + 3 * 32) + 2 * 64 + 3 * 16;
  EXPECT_EQ(Temporaries(spec) - dense, kTokens * (of_experts - 3 * 128) * kElement);
}

}  // namespace
}  // namespace tandem::plan
