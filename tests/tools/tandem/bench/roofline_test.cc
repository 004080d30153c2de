#include "tools/tandem/bench/roofline.h"

#include <gtest/gtest.h>

namespace tandem::bench {
namespace {

model::ModelSpec SmallModel() {
  model::ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 100;
  spec.hidden_size = 8;
  model::LayerSpec layer;
  layer.feed_forward.intermediate_size = 16;
  layer.attention.num_heads = 2;
  layer.attention.num_kv_heads = 1;
  layer.attention.head_dim = 4;
  spec.layers.assign(2, layer);
  return spec;
}

TEST(DecodeCost, CountsTheWeightsOfProductsOnceAndTheCacheOfEachSequence) {
  const model::ModelSpec spec = SmallModel();
  // Of each layer qkv, output, gate and up, down, and two norms; then the last norm and the head.
  const double weights = 2 * (8 * 16 + 8 * 8 + 8 * 32 + 16 * 8 + 2 * 8) + 8 + 8 * 100;

  const StepCost one = DecodeCost(spec, 2, 1, 0);
  const StepCost ten = DecodeCost(spec, 2, 10, 50);

  EXPECT_EQ(one.bytes, 2 * weights);
  EXPECT_EQ(one.flops, 2 * weights);
  EXPECT_EQ(ten.bytes, 2 * (weights + 2 * 2 * 4 * 50 * 10));
  EXPECT_EQ(ten.flops, 2 * weights * 10 + 4 * 2 * 8 * 50 * 10);
}

TEST(DecodeCost, ReadsNoMoreOfTheCacheThanTheWindow) {
  model::ModelSpec spec = SmallModel();
  spec.layers.back().attention.window = 30;
  const StepCost none = DecodeCost(spec, 2, 1, 0);
  const StepCost longer = DecodeCost(spec, 2, 1, 50);
  EXPECT_EQ(longer.bytes - none.bytes, 2 * 2 * 4 * (50 + 30));
  EXPECT_EQ(longer.flops - none.flops, 4 * 8 * (50 + 30));
}

TEST(DecodeCost, ReadsHalfAChunkOnAverage) {
  model::ModelSpec spec = SmallModel();
  spec.layers.back().attention.window = {30, /*in_chunks=*/true};
  const StepCost none = DecodeCost(spec, 2, 1, 0);
  EXPECT_EQ(DecodeCost(spec, 2, 1, 20).bytes - none.bytes, 2 * 2 * 4 * (20 + 20));
  EXPECT_EQ(DecodeCost(spec, 2, 1, 50).bytes - none.bytes, 2 * 2 * 4 * (50 + 15));
}

TEST(DecodeCost, ReadsATiedEmbeddingAsTheHead) {
  model::ModelSpec spec = SmallModel();
  const double untied = DecodeCost(spec, 4, 1, 0).bytes;
  spec.tie_word_embeddings = true;
  EXPECT_EQ(DecodeCost(spec, 4, 1, 0).bytes, untied);
}

TEST(DecodeCost, ReadsAnotherLayersKeysLikeItsOwnAndLooksInputsUp) {
  model::ModelSpec spec = SmallModel();
  const StepCost own = DecodeCost(spec, 2, 1, 50);
  spec.layers.back().attention.kv_layer = 0;
  const StepCost others = DecodeCost(spec, 2, 1, 50);
  // Without the matrices of its own keys and values.
  EXPECT_EQ(own.bytes - others.bytes, 2 * 2 * 4 * 8);
  EXPECT_EQ(own.flops - others.flops, 2 * 2 * 4 * 8);

  spec.layer_inputs = {.vocab_size = 100, .size = 3};
  for (model::LayerSpec& layer : spec.layers) layer.input_gate = {.size = 3};
  const StepCost with_inputs = DecodeCost(spec, 2, 1, 50);
  // Of each layer its rows of the projection, both matrices and the norm; the norm of the projection.
  const double weights = 2 * (3 * 8 + 2 * 3 * 8 + 8) + 3;
  EXPECT_EQ(with_inputs.bytes - others.bytes, 2 * weights);
  EXPECT_EQ(with_inputs.flops - others.flops, 2 * weights);
}

TEST(StepCost, TakesAsLongAsTheSlowerOfTheTwo) {
  const MachineRates rates{.read_bytes_per_second = 100, .flops_per_second = 1000};
  EXPECT_EQ((StepCost{50, 100}.Seconds(rates)), 0.5);
  EXPECT_EQ((StepCost{50, 2000}.Seconds(rates)), 2);
}

TEST(MachineRates, ArePositive) {
  const MachineRates rates = MeasureMachineRates(1 << 20, 2);
  EXPECT_GT(rates.read_bytes_per_second, 0);
  EXPECT_GT(rates.flops_per_second, 0);
}

}  // namespace
}  // namespace tandem::bench
