#include "tools/tandem/plan/layer_memory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tandem::plan {
namespace {

model::ModelSpec TwoLayers() {
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

// The gradients that a layer's backward pass returns, that of its input last.
std::vector<Size> Gradients(MemoryLedger& ledger, const std::vector<std::string>& frozen,
                            int64_t layer, int64_t tensor_ranks, sharding::Saves saves,
                            const model::ModelSpec& spec = TwoLayers()) {
  const model::ParameterTable table(spec, {.frozen_parameters = frozen},
                                    {0, static_cast<int>(tensor_ranks)});
  const CountedBatch batch = {.tokens = 32,
                              .attention_tokens = 32,
                              .longest_sequence = 32,
                              .hidden = spec.hidden_size,
                              .tensor_ranks = tensor_ranks};
  const int64_t bytes = batch.Bytes(spec.hidden_size);
  LayerMemory memory(ledger, table, batch, spec.layers[layer], layer, saves);
  const Size out = memory.Forward(ledger.Take(MemoryKind::kActivations, bytes));
  return memory.Backward(ledger.Take(MemoryKind::kActivations, bytes));
}

TEST(LayerMemory, HasGradientsOfTrainableParametersAndOfAnInputThatEarlierStagesNeed) {
  MemoryLedger ledger;
  const std::vector<std::string> embedding_and_norms = {"model.embed_tokens.weight",
                                                        "*norm.weight"};
  for (const int64_t tensor_ranks : {1, 2}) {
    for (const sharding::Saves saves : {sharding::Saves::kEverything, sharding::Saves::kSelected}) {
      // Two norms and four matrices.
      const std::vector<Size> all = Gradients(ledger, {}, 0, tensor_ranks, saves);
      EXPECT_EQ(all.size(), 7U);
      EXPECT_NE(all.back(), nullptr);
      const std::vector<Size> first =
          Gradients(ledger, embedding_and_norms, 0, tensor_ranks, saves);
      EXPECT_EQ(first.size(), 5U);
      EXPECT_EQ(first.back(), nullptr);
      const std::vector<Size> second =
          Gradients(ledger, embedding_and_norms, 1, tensor_ranks, saves);
      EXPECT_EQ(second.size(), 5U);
      EXPECT_NE(second.back(), nullptr);
      // The norm of the first layer trains, its input does not.
      const std::vector<Size> norm =
          Gradients(ledger, {"model.embed_tokens.weight"}, 0, tensor_ranks, saves);
      EXPECT_EQ(norm.size(), 7U);
      EXPECT_EQ(norm.back(), nullptr);
    }
  }
}

TEST(LayerMemory, HasGradientsOfTheExpertsThatTheBatchCanReach) {
  MemoryLedger ledger;
  model::ModelSpec spec = TwoLayers();
  for (const int64_t tensor_ranks : {1, 2}) {
    for (const sharding::Saves saves : {sharding::Saves::kEverything, sharding::Saves::kSelected}) {
      // Two norms, two matrices of attention, the router, two matrices of each expert, the input.
      spec.layers.front().experts = {
          .num_experts = 6, .intermediate_size = 16, .routing = {.top_k = 2}};
      EXPECT_EQ(Gradients(ledger, {}, 0, tensor_ranks, saves, spec).size(), 5U + 2 * 6 + 1);
      // 32 tokens reach at most 64 experts; a shared expert has two matrices and a gate.
      spec.layers.front().experts = {.num_experts = 100,
                                     .intermediate_size = 16,
                                     .routing = {.top_k = 2},
                                     .shared_intermediate_size = 8};
      EXPECT_EQ(Gradients(ledger, {}, 0, tensor_ranks, saves, spec).size(), 5U + 2 * 64 + 3 + 1);
    }
  }
}

// Of a layer with linear attention, forward and backward.
int64_t PeakOfLinearAttention(int64_t tokens, setup::Kernels kernels) {
  model::ModelSpec spec = TwoLayers();
  spec.layers.front().attention.delta = model::DeltaSpec{
      .num_key_heads = 4, .num_value_heads = 8, .key_dim = 128, .value_dim = 128, .kernel_size = 4};
  const model::ParameterTable table(spec);
  const CountedBatch batch = {.tokens = tokens,
                              .attention_tokens = tokens,
                              .longest_sequence = tokens,
                              .hidden = spec.hidden_size,
                              .kernels = kernels};
  MemoryLedger ledger;
  LayerMemory memory(ledger, table, batch, spec.layers[0], 0, sharding::Saves::kEverything);
  const int64_t bytes = batch.Bytes(spec.hidden_size);
  const Size out = memory.Forward(ledger.Take(MemoryKind::kActivations, bytes));
  memory.Backward(ledger.Take(MemoryKind::kActivations, bytes));
  return ledger.peak().total();
}

TEST(LayerMemory, OfLinearAttentionOnAGpuHasStatesAtTheBoundariesOfChunksUpToALimit) {
  const auto more = [](int64_t tokens) {
    return PeakOfLinearAttention(tokens, setup::Kernels::kPlain) -
           PeakOfLinearAttention(tokens, setup::Kernels::kCpu);
  };
  // States of 8 heads and their gradients, of every 64 tokens.
  EXPECT_GT(more(64 * 100), int64_t{2} * 100 * 8 * 128 * 128 * 4);
  // Heads that take turns have no more than 1 GiB of them; the rest grows with the tokens.
  EXPECT_LT(more(64 * 10000), 100 * more(64 * 100));
}

}  // namespace
}  // namespace tandem::plan
